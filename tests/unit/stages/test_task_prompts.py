"""Prompts before the texts of tasks: each role its own, once, as sentence-transformers' evaluators put them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator, InformationRetrievalEvaluator
from typer.testing import CliRunner, Result

import sentdist
from sentdist.cli import app
from sentdist.cli import scoring as mteb_scores
from sentdist.errors import DataError, EncoderError
from sentdist.inference.planned_scores import PlannedScores
from sentdist.learning.encoder.declared import CONFIG_OF_PROMPTS
from sentdist.learning.encoder.find_checkpoint import find_checkpoint
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.write_folder import EncoderCard
from sentdist.plan.specs import AskedPrompts, EncoderUse, TaskPrompts
from sentdist.plan.stages import Encoded
from sentdist.plan.task_kinds import TASK_KINDS, ForumsTask, RerankingTask
from sentdist.stages.planning.resolve import FileResolver
from sentdist.stages.tasks.retrieval import load_forums, load_reranking, load_retrieval
from sentdist.store.store import ArtifactStore
from tests.parity.wiring.fields import covers
from tests.support.tasks_data import stage_of, write_forums, write_table

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
    SentenceEncoder.load(tiny_encoder_dir, pooling="mean").save(folder, card=EncoderCard(base_model="tiny", objective=None))
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


@pytest.mark.nightly
def test_scores_of_a_real_encoder_are_those_of_sentence_transformers(scores: Callable[..., Results]) -> None:
    encoder = find_checkpoint("minilm-l6")
    for prompts in ({}, {"query": "query: ", "document": "passage: "}):
        theirs = {f"{'corpus' if name == 'document' else name}_prompt": text for name, text in prompts.items()}
        _agree(scores(encoder, FAQ, **prompts), _of_sentence_transformers(encoder, **theirs))


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


def test_what_has_no_prompt_keeps_its_key(plain: Path, data: Path) -> None:
    stage, _ = stage_of(plain, (FAQ, PAIRS), data)
    assert "prompts" not in json.dumps(stage.canonical())
    keys = {stage.model_copy(update={"prompts": TaskPrompts.model_validate({role: "x "})}).key for role in TaskPrompts.model_fields}
    assert len({stage.key, *keys}) == 4


def test_only_prompts_that_have_an_effect_count(prompted: Path, data: Path, tmp_path: Path) -> None:
    store, use = ArtifactStore(tmp_path / "store"), EncoderUse(checkpoint=str(prompted))
    pairs, both = (PlannedScores.of(use, tasks, store=store, data=data) for tasks in ([PAIRS], [FAQ, PAIRS]))
    assert pairs.stage.prompts == TaskPrompts(sentence=SENTENCE)
    assert both.stage.prompts == TaskPrompts(sentence=SENTENCE, query=QUERY, document=DOCUMENT)
    assert not any("here none is added" in note for note in both.notes)
    resolver = FileResolver(data_root=data)
    resolver.encoder(str(prompted), revision=None, where="encoder")
    assert "here none is added" in resolver.notes[0], "as trainings have it"


@pytest.mark.parametrize(
    ("tasks", "prompts", "error", "said"),
    [
        ([PAIRS], {"query": "x "}, DataError, "--query-prompt: found tasks of sentences.* alone; expected a task of queries and documents"),
        ([PAIRS], {"document": ""}, DataError, "--document-prompt has no effect"),
        ([FAQ], {"sentence": "x "}, DataError, "--prompt: found tasks of queries and documents alone"),
        ([FAQ], {"query": "querry"}, DataError, 'Did you mean "query"'),
        ([FAQ], {"query": "a man sings " * 20}, EncoderError, "expected one that leaves room for a sentence"),
    ],
)
def test_a_prompt_without_effect_or_room_is_refused(
    tasks: list[str], prompts: dict[str, str], error: type[Exception], said: str, prompted: Path, scores: Callable[..., Results]
) -> None:
    with pytest.raises(error, match=said):
        scores(prompted, *tasks, **prompts)


def test_queries_and_documents_of_every_kind_that_has_them_are_known(tiny_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    """The three kinds with queries: which texts are queries, in the order of the texts."""
    assert {name for name, kind in TASK_KINDS.items() if kind.has_queries} == {"retrieval", "reranking", "forums"}
    write_forums(tmp_path / "forums")
    rows = [{"query_id": "1", "query": "q", "document": text, "relevance": number} for number, text in enumerate(("d", "e"))]
    write_table(tmp_path, "again", [{**row, "document_id": str(number)} for number, row in enumerate(rows)])
    stage, _ = stage_of(tiny_encoder_dir, (FAQ,), data)
    loaded = (
        load_retrieval(stage.tasks[0], data),  # type: ignore[arg-type]
        load_reranking(RerankingTask(name="again", source="again", revision="any"), tmp_path),
        load_forums(ForumsTask(name="forums", source="forums", revision="any", split="test"), tmp_path),
    )
    queries = [{text for text, is_query in zip(one.sentences, one.are_queries, strict=True) if is_query} for one in loaded]
    assert queries == [set(QUERIES), {"q"}, {"how to root a phone", "phone gets hot", "what is a map"}]


def _call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def test_the_commands_say_which_prompts_they_take(plain: Path, prompted: Path, data: Path, tmp_path: Path) -> None:
    places = ("--store", tmp_path / "store", "--data", data)
    asked = _call("evaluate", prompted, "--tasks", f"{FAQ},{PAIRS}", "--query-prompt", "likeness", "--format", "json", *places)
    assert asked.exit_code == 0, asked.output
    for said in (f"{SENTENCE!r} stands before each query (its prompt likeness, as asked)", f"{DOCUMENT!r} stands before each document"):
        assert said in asked.stderr
    assert json.loads(asked.stdout)["prompts"] == {"sentence": SENTENCE, "query": SENTENCE, "document": DOCUMENT}
    beside = _call("compare", prompted, prompted, "--tasks", PAIRS, "--other-prompt", "", *places)
    assert beside.exit_code == 0 and "no prompt before each sentence (as asked)" in beside.output, beside.output
    assert "(first)" in beside.output and "(second)" in beside.output
    refused = _call("compare", plain, prompted, "--tasks", PAIRS, "--other-query-prompt", "x ", *places)
    assert refused.exit_code == 2 and "--other-query-prompt: found tasks of sentences" in re.sub(r"\s+", " ", refused.output)


def test_what_mteb_scores_goes_without_prompts_and_says_so(prompted: Path, plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for encoder, said in ((prompted, "it reads mteb's texts without its prompts (query, document, likeness)."), (plain, "")):
        mteb_scores._loaded(EncoderUse(checkpoint=str(encoder)))
        reported = capsys.readouterr().err
        assert said in reported and bool(reported) == bool(said)


def test_python_warns_of_prompts_of_which_none_is_taken(plain: Path, prompted: Path, data: Path, tmp_path: Path) -> None:
    config = prompted / CONFIG_OF_PROMPTS
    config.write_text(json.dumps(json.loads(config.read_text()) | {"default_prompt_name": None}))
    places = {"data": data, "store": tmp_path / "store"}
    with pytest.warns(UserWarning, match="no prompt before each sentence .*see evaluate: prompt"):
        silent = sentdist.evaluate(prompted, PAIRS, **places)
    assert sentdist.evaluate(prompted, PAIRS, prompt="", **places) == silent
    assert sentdist.evaluate(prompted, PAIRS, prompt="likeness", **places) != silent
    with pytest.raises(DataError, match="evaluate: query_prompt"):
        sentdist.evaluate(plain, PAIRS, query_prompt="x ", **places)
