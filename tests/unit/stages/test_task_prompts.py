"""Prompts before the texts of tasks: each role its own, once, as sentence-transformers' evaluators put them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator, InformationRetrievalEvaluator

from sentdist.errors import DataError, EncoderError
from sentdist.inference.planned_scores import PlannedScores
from sentdist.learning.encoder.declared import CONFIG_OF_PROMPTS
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.recipe.specs import AskedPrompts, EncoderUse
from sentdist.recipe.stages import Encoded
from sentdist.store.store import ArtifactStore
from tests.parity.wiring.fields import covers
from tests.support.tasks_data import write_table

DOCUMENTS = [
    "a man sings a song", "the dog runs in the garden", "two children read", "a bird sings", "a man sings to a dog",
    "one child runs", "the red garden", "a song in the garden",
]  # fmt: skip
QUERIES = ["a man sings", "the dog runs", "one child reads", "a song", "two children read"]
JUDGED = {0: (0, 4), 1: (1,), 2: (2, 5), 3: (0, 7), 4: (3,)}
QUERY, DOCUMENT, SENTENCE = "two red birds find ", "one old man in a garden: ", "the song of "
FAQ, PAIRS = "retrieval=my/faq", "sts=my/pairs"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    write_table(root, "my/faq_docs", [{"doc_id": f"d{row}", "text": text, "title": ""} for row, text in enumerate(DOCUMENTS)])
    write_table(root, "my/faq_queries", [{"query_id": f"q{row}", "query": text} for row, text in enumerate(QUERIES)])
    qrels = [{"query_id": f"q{row}", "doc_id": f"d{one}", "relevance": 1} for row, found in JUDGED.items() for one in found]
    write_table(root, "my/faq_qrels", qrels)
    pairs = zip(QUERIES, DOCUMENTS, (4.0, 5.0, 3.0, 1.5, 0.0), strict=False)
    write_table(root, "my/pairs", [{"sentence1": one, "sentence2": two, "score": score} for one, two, score in pairs])
    return root


@pytest.fixture(scope="module")
def plain(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prompted") / "plain"
    SentenceEncoder.load(tiny_encoder_dir, pooling="mean").save(folder, base_model="tiny")
    return folder


@pytest.fixture
def prompted(plain: Path, tmp_path: Path) -> Path:
    """A folder with prompts of its own, whose tokens are not pooled."""
    folder = tmp_path / "prompted"
    shutil.copytree(plain, folder)
    config = folder / CONFIG_OF_PROMPTS
    prompts = {"query": QUERY, "document": DOCUMENT, "likeness": SENTENCE}
    config.write_text(json.dumps(json.loads(config.read_text()) | {"prompts": prompts, "default_prompt_name": "likeness"}))
    pooling = folder / "1_Pooling/config.json"
    pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"include_prompt": False}))
    return folder


Results = dict[str, float | None]


@pytest.fixture
def scores(data: Path, tmp_path: Path) -> Callable[..., Results]:
    def made(encoder: Path, *tasks: str, **prompts: str) -> Results:
        use = EncoderUse(checkpoint=str(encoder))
        store = ArtifactStore(tmp_path / "store")
        return dict(PlannedScores.of(use, tasks, store=store, data=data, prompts=AskedPrompts(**prompts)).made().record.results)

    return made


def _of_sentence_transformers(encoder: Path, **prompts: str) -> dict[str, float]:
    evaluator = InformationRetrievalEvaluator(
        queries={str(row): text for row, text in enumerate(QUERIES)},
        corpus={str(row): text for row, text in enumerate(DOCUMENTS)},
        relevant_docs={str(row): set(map(str, found)) for row, found in JUDGED.items()},
        write_csv=False,
        **prompts,
    )
    found = evaluator(SentenceTransformer(str(encoder), device="cpu"))
    return {"map": found["cosine_map@100"], "ndcg@10": found["cosine_ndcg@10"], "mrr": found["cosine_mrr@10"]}


def _agree(ours: Results, theirs: dict[str, float]) -> None:
    for name, value in theirs.items():
        assert ours[f"retrieval-my-faq.{name}"] == pytest.approx(100 * value, abs=1e-6)


@covers("Scores.prompts", "TaskPrompts.sentence", "TaskPrompts.query", "TaskPrompts.document")
def test_scores_are_those_of_sentence_transformers_evaluators(plain: Path, prompted: Path, scores: Callable[..., Results]) -> None:
    """Asked for as texts, by the folder's own prompts, whose tokens are not pooled, and without any."""
    asked = scores(plain, FAQ, query=QUERY, document=DOCUMENT)
    _agree(asked, _of_sentence_transformers(plain, query_prompt=QUERY, corpus_prompt=DOCUMENT))
    own = scores(prompted, FAQ, PAIRS)
    _agree(own, _of_sentence_transformers(prompted))
    none = scores(plain, FAQ)
    _agree(none, _of_sentence_transformers(plain))
    measures = [{name: value for name, value in one.items() if name.startswith("retrieval")} for one in (asked, own, none)]
    assert measures[0] != measures[1] != measures[2] != measures[0], "else the test shows nothing"
    alike = EmbeddingSimilarityEvaluator(QUERIES, DOCUMENTS[:5], [4.0, 5.0, 3.0, 1.5, 0.0], write_csv=False)
    found = alike(SentenceTransformer(str(prompted), device="cpu"))
    assert own["sts-my-pairs"] == pytest.approx(100 * found["spearman_cosine"], abs=1e-6)
    assert own["sts-my-pairs.pearson"] == pytest.approx(100 * found["pearson_cosine"], abs=1e-5)


def test_embeddings_are_kept_by_their_prompt(prompted: Path, data: Path, scores: Callable[..., Results], tmp_path: Path) -> None:
    """A text behind a prompt that is not pooled is another than the same text as a sentence."""
    written = {"query": "", "document": ""}
    first = scores(prompted, FAQ, **written)
    assert scores(prompted, FAQ) != first
    again = scores(prompted, FAQ, PAIRS, sentence="", **written)
    assert {name: again[name] for name in first} == first
    kept = [one.record for one in ArtifactStore(tmp_path / "store").artifacts(Encoded.kind)]
    num = {(one.stage["fields"].get("prompt", ""), one.results["num_sentences"]) for one in kept}  # type: ignore[union-attr]
    assert num == {("", 12), (QUERY, 5), (DOCUMENT, 8)}, "pairs are of sentences that are known"


def test_a_prompt_without_effect_or_room_is_refused(prompted: Path, scores: Callable[..., Results]) -> None:
    for task, role, prompt, said in (
        (PAIRS, "query", "x ", "prompt of each query: found tasks of sentence texts"),
        (PAIRS, "document", "", "prompt of each document"),
        (FAQ, "sentence", "x ", "prompt of each sentence"),
        (FAQ, "query", "querry", 'Did you mean "query"'),
        (FAQ, "query", "a man sings " * 20, "expected one that leaves room for a sentence"),
    ):
        with pytest.raises((DataError, EncoderError), match=said):
            scores(prompted, task, **{role: prompt})
