"""Tasks on mteb's own base classes, made here: nothing is downloaded."""

from __future__ import annotations

from typing import Any

from datasets import Dataset, DatasetDict
from mteb.abstasks.classification import AbsTaskClassification
from mteb.abstasks.clustering import AbsTaskClustering
from mteb.abstasks.clustering_legacy import AbsTaskClusteringLegacy
from mteb.abstasks.pair_classification import AbsTaskPairClassification
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata

from tests.support.tiny_encoders import SENTENCES

PAIRS = [(SENTENCES[one], SENTENCES[other], float(5 - abs(one - other))) for one in range(5) for other in range(one + 1, 5)]

_WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
APART = [  # no two have a text in common
    (f"{word} {_WORDS[place - 1]}", " ".join(_WORDS[place - back] for back in range(1, 3 + place % 4)), float(place % 6))
    for place, word in enumerate(_WORDS)
]


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


class TinyApart(TinySts):
    metadata = _facts("TinyApart", "STS", "cosine_spearman")
    pairs = APART


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


class TinyTwoLanguages(AbsTaskSTS):
    metadata = _facts("TinyTwoLanguages", "STS", "cosine_spearman", languages={"en": ["eng-Latn"], "de": ["deu-Latn"]})

    def load_data(self, **options: Any) -> None:
        self.dataset = {}
        for number, language in enumerate(("en", "de")):
            columns = map(list, zip(*PAIRS[number:], strict=True))
            rows = Dataset.from_dict(dict(zip(("sentence1", "sentence2", "score"), columns, strict=True)))
            self.dataset[language] = DatasetDict(test=rows)
        self.data_loaded = True


class TinyPairs(AbsTaskPairClassification):
    metadata = _facts("TinyPairs", "PairClassification", "similarity_ap")
    label_column_name = "label"

    def load_data(self, **options: Any) -> None:
        first, second, scores = map(list, zip(*PAIRS, strict=True))
        rows = {"sentence1": first, "sentence2": second, "label": [int(score > 3) for score in scores]}
        self.dataset = DatasetDict(test=Dataset.from_dict(rows))
        self.data_loaded = True


class TinyTopics(AbsTaskClassification):
    metadata = _facts("TinyTopics", "Classification", "accuracy")
    samples_per_label, n_experiments = 2, 3

    def load_data(self, **options: Any) -> None:
        texts = list(dict.fromkeys(SENTENCES))
        train = Dataset.from_dict({"text": texts, "label": [number % 2 for number in range(len(texts))]})
        self.dataset = DatasetDict(train=train, test=train.select(range(len(texts) - 1)))
        self.data_loaded = True


class TinyClusters(AbsTaskClusteringLegacy):
    metadata = _facts("TinyClusters", "Clustering", "v_measure")

    def load_data(self, **options: Any) -> None:
        texts = list(dict.fromkeys(SENTENCES))
        sets = [texts, texts[1:]]
        self.dataset = DatasetDict(
            test=Dataset.from_dict({"sentences": sets, "labels": [[str(number % 2) for number in range(len(one))] for one in sets]})
        )
        self.data_loaded = True


class TinyDrawnClusters(AbsTaskClustering):
    metadata = _facts("TinyDrawnClusters", "Clustering", "v_measure")
    max_fraction_of_documents_to_embed, max_documents_per_cluster, n_clusters = None, 8, 2

    def load_data(self, **options: Any) -> None:
        texts = list(dict.fromkeys(SENTENCES))
        rows = {"sentences": texts, "labels": [str(number % 2) for number in range(len(texts))]}
        self.dataset = DatasetDict(test=Dataset.from_dict(rows))
        self.data_loaded = True


class TinyImages(AbsTaskSTS):
    metadata = _facts("TinyImages", "VisualSTS(eng)", "cosine_spearman", modality="image")
