"""Relational embeddings from triples to scores on tiny data: what is built, kept and refused."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
import pytest

from sentdist.api.encoders import card_of
from sentdist.data.corpus import OpenedCorpus
from sentdist.data.relations import HeldOutTriples, held_out_relations
from sentdist.errors import DataError, RecipeError
from sentdist.learning.encoder.declared import ends_in_normalize
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.relation_file import Relations, has_relations, read_relations
from sentdist.plan.corpora.relations import LinkTask, RelationalCorpus, RelationFile, RelationPart, link_task
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.stage import Json
from sentdist.plan.stages import Scores, Train
from sentdist.plan.unroll import Plan
from sentdist.report.sweep_report import report_sweep
from sentdist.stages.context import Context, folder_of
from sentdist.stages.corpora import build_corpus_stage, relation_sources
from sentdist.stages.scores.build import build_scores
from sentdist.stages.scores.scorer import CosineScorer
from sentdist.stages.tasks.links import LoadedLinks, load_links
from sentdist.stages.tasks.sts import LoadedSts
from sentdist.store.store import Artifact, ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from tests.support.building import run_local
from tests.support.planning import plan_of
from tests.support.relations_data import ENTAILMENT, TWIN, relations_values, write_relations_data
from tests.support.tiny_data import tiny_plan
from tests.support.tiny_encoders import normalized_encoder

NAMES = ("entailment", "twin", "same-caption", "same-sentence")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_relations_data(tmp_path_factory.mktemp("relations"))


@pytest.fixture(scope="module")
def finished(data: Path, tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Context]:
    """The whole recipe, built in this process, from an encoder that asks sentence-transformers for embeddings of length 1."""
    encoder = normalized_encoder(tiny_encoder_dir, tmp_path_factory.mktemp("base") / "encoder")
    plan, context = tiny_plan(relations_values(encoder), data=data, store=tmp_path_factory.mktemp("store"))
    run_local(plan, context)
    return plan, context


def scores_of(finished: tuple[Plan, Context], method: str) -> tuple[Scores, Artifact]:
    plan, context = finished
    stage = next(trial.scores for trial in plan.trials if trial.method == method)
    artifact = context.store.get(stage)
    assert artifact is not None
    return stage, artifact


def train_of(finished: tuple[Plan, Context], method: str) -> Train:
    encoder = scores_of(finished, method)[0].encoder
    assert isinstance(encoder, Train)
    return encoder


def test_a_corpus_knows_the_relation_of_every_row(finished: tuple[Plan, Context]) -> None:
    context = finished[1]
    stage = train_of(finished, "rse").corpus
    corpus = OpenedCorpus.open(folder_of(stage, context))
    assert corpus.ids.shape[0] == 3 and corpus.relations is not None
    counts = np.bincount(corpus.relations).tolist()
    assert counts == [32 - 8, 48 - 8, 60 - 8, 12]  # four pairs of each relation are kept for dev and four for test; the last is capped
    record = context.store.get(stage)
    assert record is not None and record.record.results["relations"]["twin"]["num_kept"] == 40  # type: ignore[index, call-overload]


def test_an_encoder_keeps_its_relations(finished: tuple[Plan, Context]) -> None:
    for method in ("rse", "regulated"):
        found = read_relations(folder_of(train_of(finished, method), finished[1]))
        assert found.names == NAMES and found.vectors.shape == (4, 32) and found.pooling == "mean"
        assert np.linalg.norm(found.vectors, axis=1).min() > 0.05
    for method in ("merged", "rcl_on_rse"):
        assert not has_relations(folder_of(train_of(finished, method), finished[1]))


def test_lengths_are_made_1_as_of_the_base_but_not_of_an_encoder_with_relations(finished: tuple[Plan, Context]) -> None:
    """A relation's vector is added to what pooling gives: to an embedding of length 1 it would be another sum. What starts from such an
    encoder ends as its start."""
    ends = {method: folder_of(train_of(finished, method), finished[1]) for method in ("rse", "regulated", "merged", "rcl_on_rse")}
    assert {method: ends_in_normalize(folder) for method, folder in ends.items()} == {
        "rse": False, "regulated": False, "merged": True, "rcl_on_rse": False,
    }  # fmt: skip
    store = finished[1].store
    cards = {method: card_of(artifact, store, name="me/mine") for method in ends if (artifact := store.get(train_of(finished, method)))}
    assert "Embeddings have length 1" in cards["merged"] and "normalize_embeddings=True" not in cards["merged"]
    assert "normalize_embeddings=True" in cards["rse"] and "have length 1" not in cards["rse"]


def test_the_relations_learn_at_a_rate_of_their_own(
    finished: tuple[Plan, Context], tiny_encoder_dir: Path, data: Path, tmp_path: Path
) -> None:
    """Ten steps at 1e-2 move a component by about 0.05; at 1e-6 it stays where it started."""
    values = relations_values(tiny_encoder_dir)
    methods: dict[str, Json] = {"rse": {"objective": {"name": "rse", "relation_learning_rate": 1e-6}, "select": False}}
    plan, context = tiny_plan(values | {"methods": methods, "baseline": None}, data=data, store=tmp_path)
    run_local(plan, context)
    slow = read_relations(folder_of(plan.trials[0].scores.encoder, context))  # type: ignore[arg-type]
    fast = read_relations(folder_of(train_of(finished, "rse"), finished[1]))
    assert slow.vectors.std() == pytest.approx(0.02, rel=0.2)
    assert np.abs(fast.vectors - slow.vectors).mean() > 0.02


def test_relations_of_the_start_are_kept_where_the_recipe_says_so(
    finished: tuple[Plan, Context], tiny_encoder_dir: Path, data: Path
) -> None:
    """At a rate of 1e-6 a vector stays where it began: at that of the start, or at a random one."""
    still = relations_values(tiny_encoder_dir)["methods"]["rse"]  # type: ignore[index, call-overload]
    slow: Json = {"name": "rse", "relation_learning_rate": 1e-6}
    twins: Json = {"kind": "relations", "relations": [TWIN, ENTAILMENT | {"name": "implication"}], "held_out": 4}
    second: Json = {"corpus": "twins", "start": "rse", "select": False}
    methods: Json = {
        "rse": still,
        "anew": second | {"objective": slow},
        "kept": second | {"objective": slow | {"keep_relations": True}},
    }
    values = relations_values(tiny_encoder_dir, methods=methods, baseline=None, corpora={"twins": twins}, evaluation={"tasks": ["stsb"]})
    plan, context = tiny_plan(values, data=data, store=finished[1].store.root)
    run_local(plan, context)
    tables = {
        trial.method: dict(zip(found.names, found.vectors, strict=True))
        for trial in plan.trials
        for found in [read_relations(folder_of(trial.scores.encoder, context))]  # type: ignore[arg-type]
    }
    assert list(tables["kept"]) == list(tables["anew"]) == ["twin", "implication"]
    np.testing.assert_allclose(tables["kept"]["twin"], tables["rse"]["twin"], atol=1e-4)
    np.testing.assert_allclose(tables["kept"]["implication"], tables["anew"]["implication"], atol=1e-4)  # the start does not know it
    assert np.abs(tables["anew"]["twin"] - tables["rse"]["twin"]).mean() > 0.02


def test_sentence_transformers_reads_the_encoder_without_its_relations(finished: tuple[Plan, Context]) -> None:
    from sentence_transformers import SentenceTransformer

    folder = folder_of(train_of(finished, "rse"), finished[1])
    sentences = ["a dog runs in the garden", "the old man sleeps"]
    ours = encode(SentenceEncoder.load(folder).eval(), sentences, max_length=None, tokens_per_batch=1024, precision="fp32")
    np.testing.assert_allclose(SentenceTransformer(str(folder), device="cpu").encode(sentences), ours, atol=1e-5)


def test_a_view_by_relations_scores_another_way(finished: tuple[Plan, Context]) -> None:
    by_method = {method: scores_of(finished, method)[1].record.results for method in ("rse", "rse_plain", "rse_one_way")}
    assert len({results["stsb"] for results in by_method.values()}) == 3
    assert len({results["links"] for results in by_method.values()}) == 1  # link prediction reads the table, not the view
    assert train_of(finished, "rse") == train_of(finished, "rse_plain") == train_of(finished, "rse_one_way")


def test_the_checkpoint_is_chosen_by_the_method_s_own_view(finished: tuple[Plan, Context]) -> None:
    chosen = train_of(finished, "rse").selection
    assert chosen is not None and chosen.view.relations is not None
    assert chosen.view.relations.by_name == {"entailment": 1.0, "twin": 0.5} and chosen.view.relations.curve is None
    merged = train_of(finished, "merged").selection
    assert merged is not None and merged.view.relations is None


def test_scores_equal_those_of_the_saved_files(finished: tuple[Plan, Context], data: Path) -> None:
    """By hand, from the folder: max over both directions of 2/3 cos(h + r_entailment, h') + 1/3 cos(h + r_twin, h')."""
    stage, artifact = scores_of(finished, "rse")
    folder = folder_of(stage.encoder, finished[1])  # type: ignore[arg-type]
    items = pq.read_table(finished[1].store.folder(artifact) / "items" / "stsb.parquet")["similarity"].to_numpy()
    rows = [row for row in pq.read_table(data / "sts/stsb.parquet").to_pylist() if row["split"] == "test"]
    relations = dict(zip(NAMES, read_relations(folder).vectors.astype(np.float64), strict=True))
    encoder = SentenceEncoder.load(folder).eval()
    first, second = (
        encode(encoder, [row[column] for row in rows], max_length=None, tokens_per_batch=1024, precision="fp32").astype(np.float64)
        for column in ("sentence1", "sentence2")
    )

    def one_way(heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
        total = np.zeros(len(heads))
        for name, weight in (("entailment", 2 / 3), ("twin", 1 / 3)):
            shifted = heads + relations[name]
            total += weight * (shifted * tails).sum(1) / np.linalg.norm(shifted, axis=1) / np.linalg.norm(tails, axis=1)
        return total

    np.testing.assert_allclose(items, np.maximum(one_way(first, second), one_way(second, first)), atol=1e-5)  # float32 embeddings


def test_the_record_holds_what_the_figures_show(finished: tuple[Plan, Context]) -> None:
    results = scores_of(finished, "rse")[1].record.results
    relations, curve = results["relations"], results["weight_curve"]
    assert isinstance(relations, dict) and relations["names"] == list(NAMES)
    cosines = np.array(relations["cosines"])
    assert cosines.shape == (4, 4) and np.allclose(np.diag(cosines), 1) and np.allclose(cosines, cosines.T)
    assert isinstance(curve, dict) and curve["weights"] == [0.0, 0.5, 1.0]
    scores = curve["scores"]
    assert isinstance(scores, list) and scores[1] == pytest.approx(results["stsb"])  # the weight that the view itself has
    assert "weight_curve" not in scores_of(finished, "rse_one_way")[1].record.results
    assert "relations" not in scores_of(finished, "merged")[1].record.results


def test_a_weight_at_which_a_task_has_no_score_has_no_mean(finished: tuple[Plan, Context], monkeypatch: pytest.MonkeyPatch) -> None:
    """As where all similarities are equal."""
    (stage, _), (_, context) = scores_of(finished, "rse"), finished
    one, two = (task.model_copy(update={"name": f"stsb-{limit}", "limit": limit}) for task in stage.tasks[:1] for limit in (6, 8))
    curves = {"stsb-6": [None, 40.0, 50.0], "stsb-8": [10.0, 20.0, None]}
    monkeypatch.setattr(LoadedSts, "curve", lambda self, embeddings_SD, scorer: curves[self.task.name])
    curve = build_scores(stage.model_copy(update={"tasks": (one, two)}), context).record.results["weight_curve"]
    assert isinstance(curve, dict) and curve["scores"] == [None, 30.0, None]


def test_tails_are_ranked_for_every_encoder(finished: tuple[Plan, Context]) -> None:
    for method in ("base", "merged", "rse"):
        results = scores_of(finished, method)[1].record.results
        assert results["links"] == results["links.all.mrr"]
        for name in (*NAMES, "all"):
            mrr, first, tenth = (float(results[f"links.{name}.{measure}"]) for measure in ("mrr", "hits@1", "hits@10"))  # type: ignore[arg-type]
            assert 0 <= first <= mrr <= 100 and first <= tenth == 100  # four tails a relation
    assert scores_of(finished, "rse")[1].record.results["links.same-sentence.mrr"] == pytest.approx(100.0)  # a sentence finds itself


def test_the_report_shows_relations_and_links(finished: tuple[Plan, Context]) -> None:
    plan, context = finished
    save_sweep(context.store, sweep_record(plan))
    report = report_sweep(context.store, "tiny-relations")
    assert {"relations-rse.svg", "relations-regulated.png", "weights-twin.csv", "relations-rse.csv"} <= report.files.keys()
    assert not any("rse_plain" in name for name in report.files)  # another reading of one table
    curve = str(report.files["weights-twin.csv"]).splitlines()
    assert len(curve) == 1 + 3 * 2  # of rse and of regulated
    assert "Link prediction" in report.html and "| rse | same-sentence | 100.0 |" in report.markdown
    assert "links" not in str(report.files["table1.csv"])


# What is refused


def refusal(**changes: Json) -> str:
    values = copy.deepcopy(relations_values(Path("encoder"))) | {"encoder": {"checkpoint": "minilm-l6"}}
    methods = values["methods"]
    assert isinstance(methods, dict)
    values["methods"] = {name: method for name, method in methods.items() if name in ("base", "merged", "rse")}
    for path, value in changes.items():
        target = values
        *inner, last = path.split("__")
        for part in inner:
            target = target[part]  # type: ignore[assignment]
        target[last] = value
    with pytest.raises(RecipeError) as caught:
        plan_of(recipe_from_values(values, where="recipe.yaml"))
    return str(caught.value)


PROJECTED: Json = {"name": "sum", "terms": [{"objective": {"name": "rse"}, "projected": True}, {"objective": {"name": "mlm"}}]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"methods__rse__view": {"relations": {"weights": {"entailmemt": 1.0}}}}, 'Did you mean "entailment"?'),
        ({"methods__rse__view": {"relations": {"weights": {"entailment": 1.0}, "curve": {"relation": "x", "weights": [0, 1]}}}}, '"x" is not one'),
        ({"methods__merged__view": {"relations": {"weights": {"entailment": 1.0}}}}, "an encoder without relations"),
        ({"methods__base__view": {"relations": {"weights": {"entailment": 1.0}}}}, "an encoder without relations"),
        ({"methods__rse__view": {"relations": {"weights": {"entailment": 0.0}}}}, "no weight above 0"),
        ({"methods__rse__view": {"relations": {"weights": {"entailment": -1.0}}}}, "found -1.0; expected 0 or more. Nothing"),
        ({"methods__rse__view": {"relations": {"weights": {}}}}, "at least one"),
        ({"methods__rse__view": {"postprocess": "whiten", "relations": {"weights": {"twin": 1.0}}}}, "whole embeddings"),
        ({"selection": {"task": "stsb-dev", "view": {"relations": {"weights": {"twin": 1.0}}}}}, "selection.view.relations"),
        ({"corpus": {"source": "nli/triplets"}, "evaluation": {"tasks": ["stsb"]}}, "rows of no relation"),
        ({"corpus": {"kind": "relations", "relations": [ENTAILMENT, ENTAILMENT]}}, "expected each name once"),
        ({"corpus": {"kind": "relations", "relations": []}}, "at least one"),
        ({"corpus": {"kind": "relations", "relations": [TWIN], "cap": 0}}, "found 0; expected 1 or more"),
        ({"corpus": {"kind": "relations", "relations": [TWIN], "cap_rule": "sample"}}, "no effect without a cap"),
        ({"corpus": {"kind": "relations", "relations": [TWIN | {"columns": ["a"]}]}}, "expected 2 for pairs"),
        ({"corpora__alone": {"kind": "relations", "relations": [TWIN]}, "evaluation__links": {"corpus": "alone"}}, "holds out none"),
        ({"corpora__alone": {"kind": "relations", "relations": [TWIN], "held_out": 8}, "evaluation__links": {"corpus": "alone"}}, "has learned"),
        ({"corpora__alone": {"kind": "relations", "relations": [TWIN], "held_out": 4, "seed": 1}, "evaluation__links": {"corpus": "alone"}}, "has learned"),
        ({"corpora__alone": {"kind": "relations", "relations": [TWIN]}, "methods__rse__corpus": "alone", "methods__rse__reported": False, "methods__merged__start": "rse"}, "has learned"),
        ({"evaluation": {"tasks": ["stsb"], "links": {"corpus": "aloen"}}}, 'Did you mean "alone"?'),
        ({"encoder__pooling": "cls_last_five", "evaluation": {"tasks": ["stsb"]}, "methods__rse__view": {"relations": {"weights": {"twin": 1.0}}}}, "found cls_last_five"),
        ({"encoder__pooling": "cls_mlp_train_only", "methods__rse__view": {}, "evaluation": {"tasks": ["stsb"], "links": {}}}, "found cls_mlp_train_only"),
        ({"methods__rse__objective": PROJECTED, "evaluation": {"tasks": ["stsb"]}, "methods__rse__view": {"relations": {"weights": {"twin": 1.0}}}}, "a layer that is dropped at test"),
        ({"methods__rse__objective": PROJECTED, "methods__rse__view": {}, "evaluation": {"tasks": ["stsb"], "links": {}}}, "a layer that is dropped at test"),
        ({"methods__rse__view": {"channels": [0, 8]}, "evaluation": {"tasks": ["stsb"], "links": {}}}, "methods.rse.view: found some channels"),
        ({"methods__rse__view": {"postprocess": "center"}, "evaluation": {"tasks": ["stsb"], "links": {}}}, "found postprocess center"),
        ({"methods__rse__objective": {"name": "rse", "keep_relations": True}}, "keep_relations: found no start"),
        ({"methods__rse__objective": {"name": "rse", "keep_relations": True}, "methods__rse__start": "merged"}, "a start without relations"),
    ],
)  # fmt: skip
def test_recipes_without_a_meaning_are_refused(changes: dict[str, Json], said: str) -> None:
    assert said in refusal(**changes)


def test_the_task_of_a_corpus_is_one_whether_its_key_was_asked_for_before_or_not() -> None:
    part = RelationPart(
        name="twin", construction="pairs", sources=(RelationFile(source="pairs/twins", source_revision="1"),), columns=("a", "b")
    )
    corpus = RelationalCorpus(relations=(part.model_copy(update={"cap": 12}),), cap_rule="sample", held_out=4, seed=1)
    task = link_task(corpus, "all")
    assert (task.revision, [one.cap for one in task.relations], task.source) == (corpus.key, [None], "relations/twin")
    assert link_task(corpus, "all") == task


def test_a_relation_that_no_data_has_is_refused(data: Path, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    absent = TWIN | {"sources": [{"source": "pairs/twinz", "split": None}]}
    with pytest.raises(DataError, match="Did you mean pairs/twins"):
        tiny_plan(relations_values(tiny_encoder_dir, corpus={"kind": "relations", "relations": [absent]}), data=data, store=tmp_path)
    empty = ENTAILMENT | {"columns": ["premise", "label", "hypothesis"]}
    alone: Json = {"rse": {"objective": {"name": "rse"}}}
    values = relations_values(tiny_encoder_dir, corpus={"kind": "relations", "relations": [empty, TWIN], "held_out": 4}, methods=alone)
    del values["baseline"]
    plan, context = tiny_plan(values, data=data, store=tmp_path)
    stage = next(stage.corpus for stage in plan.stages if isinstance(stage, Train))
    with pytest.raises(DataError, match="relation entailment: found no pair"):
        build_corpus_stage(stage, context)


def test_words_alone_rank_tails_too(data: Path, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    values = relations_values(tiny_encoder_dir) | {"methods": {"overlap": {"lexical": "word_overlap"}}, "baseline": None}
    plan, context = tiny_plan(values, data=data, store=tmp_path)
    results = build_scores(plan.trials[0].scores, context).record.results
    assert results["links.same-sentence.mrr"] == pytest.approx(100.0) and float(results["links"]) > 50  # type: ignore[arg-type]


@pytest.mark.parametrize("pool", ["relation", "all"])
def test_tails_are_ranked_by_the_vector_of_their_relations_name_and_words_rank_the_same_pool(pool: Literal["relation", "all"]) -> None:
    draw = np.random.default_rng(0)
    triples = HeldOutTriples(
        heads=("a b", "b c", "c d e", "a e", "d d", "b"), tails=("a", "b c d", "c e", "a d", "b e", "a c"),
        tail=np.array([1, 0, 2, 3, 4, 5]), relation=np.array([0, 1, 0, 2, 2, 1]), known=np.array([[0, 2], [3, 4], [4, 0], [5, 3]]),
        names=("near", "far", "unseen"),
    )  # fmt: skip
    vectors = 2.0 * draw.normal(size=(2, 5)).astype(np.float32)
    scorer = CosineScorer(relations=Relations(names=("far", "near"), vectors=vectors))
    heads, tails = draw.normal(size=(6, 5)), draw.normal(size=(6, 5))
    shifts = np.stack([vectors[1], vectors[0], np.zeros(5)])[triples.relation]

    def ranks(scores_TK: np.ndarray) -> list[float]:
        found = []
        for row, (tail, relation) in enumerate(zip(triples.tail, triples.relation, strict=True)):
            known = {place for triple, place in triples.known.tolist() if triple == row}
            others = [t for t, r in zip(triples.tail, triples.relation, strict=True) if t != tail and t not in known]
            others = [t for t in others if pool == "all" or triples.relation[triples.tail.tolist().index(t)] == relation]
            better, beside = (
                sum(scores_TK[row, t] > scores_TK[row, tail] for t in others),
                sum(scores_TK[row, t] == scores_TK[row, tail] for t in others),
            )
            found.append(1 + better + beside / 2)
        return found

    task = LoadedLinks(task=LinkTask(source="made", revision="made", relations=(), held_out=3, seed=0, pool=pool), triples=triples)
    cosines = (heads + shifts) @ tails.T / np.linalg.norm(heads + shifts, axis=1)[:, None] / np.linalg.norm(tails, axis=1)
    assert task.score(np.vstack([heads, tails]), scorer).items["rank"].to_pylist() == ranks(cosines)
    words = [[set(text.split()) for text in texts] for texts in (triples.heads, triples.tails)]
    overlaps = np.array([[len(head & tail) / len(head | tail) for tail in words[1]] for head in words[0]])
    assert task.score_words("word_overlap").items["rank"].to_pylist() == ranks(overlaps)


def test_links_are_what_is_held_out_for_testing(data: Path) -> None:
    file = RelationFile(source="pairs/twins", source_revision="1", split=None)
    part = RelationPart(name="twin", construction="pairs", sources=(file,), columns=("sentence1", "sentence2"))
    task = LinkTask(source="made", revision="made", relations=(part,), held_out=4, seed=3)
    held_out = {
        side: held_out_relations(relation_sources(task.relations, data), held_out=4, part=side, seed=3).heads for side in ("dev", "test")
    }
    assert load_links(task, data).triples.heads == held_out["test"] != held_out["dev"]


def test_the_card_of_an_encoder_with_relations_has_the_ranks_of_its_links(finished: tuple[Plan, Context]) -> None:
    artifact, context = train_of(finished, "rse"), finished[1]
    card = card_of(context.store.finished(artifact.place), context.store, name="me/related")
    assert re.search(r"\| links \| MRR \| \d+\.\d\d \| – \| \d+\.\d\d \| – \|", card), "triples have ranks, which no interval is made of"


def test_a_card_has_the_scores_that_sentence_transformers_give_not_those_of_a_view(
    finished: tuple[Plan, Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact, store = train_of(finished, "rse"), finished[1].store
    plain = scores_of(finished, "rse_plain")[1].record.results["stsb"]
    stored = list(store.artifacts())
    for order in (stored, stored[::-1]):
        monkeypatch.setattr(
            ArtifactStore, "artifacts", lambda _, kind=None, order=order: [one for one in order if kind in (None, one.record.kind)]
        )
        assert f"| stsb | Spearman | {plain:.2f} |" in card_of(store.finished(artifact.place), store, name="me/related")
