"""Tasks on mteb's own base classes, made here: nothing is downloaded."""

from __future__ import annotations

from typing import Any

from datasets import Dataset, DatasetDict
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata

from tests.support.tiny_encoders import SENTENCES

PAIRS = [(SENTENCES[one], SENTENCES[other], float(5 - abs(one - other))) for one in range(5) for other in range(one + 1, 5)]

_WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})


def _facts(name: str, kind: str, score: str, modality: str = "text", languages: Any = ("eng-Latn",)) -> TaskMetadata:
    return TaskMetadata(
        name=name, type=kind, main_score=score, description="Made for a test.", reference=None,
        dataset={"path": "made/here", "revision": "1"}, category="t2t" if modality == "text" else "i2i", modalities=[modality],
        eval_splits=["test"], eval_langs=languages if isinstance(languages, dict) else list(languages), date=None, domains=None, task_subtypes=None, license=None,
        annotations_creators=None, dialect=None, sample_creation=None, bibtex_citation=None,
    )  # fmt: skip


class TinySts(AbsTaskSTS):
    metadata = _facts("TinySts", "STS", "cosine_spearman")
    pairs = PAIRS

    def load_data(self, **options: Any) -> None:
        columns = zip(*self.pairs, strict=True)
        self.dataset = DatasetDict(test=Dataset.from_dict(dict(zip(("sentence1", "sentence2", "score"), map(list, columns), strict=True))))
        self.data_loaded = True


class TinyFaq(AbsTaskRetrieval):
    metadata = _facts("TinyFaq", "Retrieval", "ndcg_at_10")

    def load_data(self, **options: Any) -> None:
        texts = list(dict.fromkeys(SENTENCES))[:5]
        ids = [f"d{number}" for number in range(len(texts))]
        split = RetrievalSplitData(
            corpus=Dataset.from_dict({"id": ids, "text": texts, "title": [""] * len(texts)}),
            queries=Dataset.from_dict({"id": [f"q{one}" for one in ids], "text": texts}),
            relevant_docs={f"q{one}": {one: 1} for one in ids},
            top_ranked=None,
        )
        self.dataset = {"default": {"test": split}}
        self.data_loaded = True


class TinyImages(AbsTaskSTS):
    metadata = _facts("TinyImages", "VisualSTS(eng)", "cosine_spearman", modality="image")
