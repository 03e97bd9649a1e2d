"""Relational embeddings from triples to scores on tiny data: what is built, kept and refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from sentdist.corpora.triples import HeldOutTriples
from sentdist.data.corpus import OpenedCorpus
from sentdist.errors import RecipeError
from sentdist.learning.encoder.declared import Checkpoint
from sentdist.learning.relation_file import Relations, has_relations, read_relations
from sentdist.recipe.recipe import recipe_from_values
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Scores, Train
from sentdist.recipe.unroll import Plan
from sentdist.stages.context import Context, folder_of
from sentdist.store.store import Artifact
from sentdist.tasks.links import LinkTask, LoadedLinks
from sentdist.tasks.scorer import CosineScorer
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
    ends = {method: folder_of(train_of(finished, method), finished[1]) for method in ("rse", "merged", "rcl_on_rse")}
    lengths = {method: Checkpoint.open(folder).is_normalized for method, folder in ends.items()}
    assert lengths == {"rse": False, "merged": True, "rcl_on_rse": False}, "a vector is added to what pooling gives, not to a length of 1"
    for method in ("merged", "rcl_on_rse"):
        assert not has_relations(folder_of(train_of(finished, method), finished[1]))


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
        ({"methods__merged__view": {"relations": {"weights": {"entailment": 1.0}}}}, '"entailment" is not one of (none)'),
        ({"methods__rse__view": {"relations": {"weights": {"entailment": 0.0}}}}, "no weight above 0"),
        ({"methods__rse__view": {"postprocess": "whiten", "relations": {"weights": {"twin": 1.0}}}}, "whole embeddings"),
        ({"corpus": {"source": "nli/triplets"}, "evaluation": {"tasks": ["stsb"]}}, "rows without relations"),
        ({"corpus": {"kind": "relations", "relations": [ENTAILMENT, ENTAILMENT]}}, "expected each name once"),
        ({"corpus": {"kind": "relations", "relations": [TWIN], "cap_rule": "sample"}}, "no effect without a cap"),
        ({"corpus": {"kind": "relations", "relations": [TWIN | {"columns": ["a"]}]}}, "expected 2 for pairs"),
        ({"corpora__alone": {"kind": "relations", "relations": [TWIN]}, "evaluation__links": {"corpus": "alone"}}, "without held-out pairs"),
        ({"corpora__alone": {"kind": "relations", "relations": [TWIN], "held_out": 8}, "evaluation__links": {"corpus": "alone"}}, "expected 8 with seed 0"),
        ({"encoder__pooling": "cls_last_five", "evaluation": {"tasks": ["stsb"]}, "methods__rse__view": {"relations": {"weights": {"twin": 1.0}}}}, "found cls_last_five"),
        ({"methods__rse__objective": PROJECTED, "evaluation": {"tasks": ["stsb"]}, "methods__rse__view": {"relations": {"weights": {"twin": 1.0}}}}, "a layer that is dropped at test"),
        ({"methods__rse__view": {"channels": [0, 8]}, "evaluation": {"tasks": ["stsb"], "links": {}}}, "methods.rse.view: found some channels"),
        ({"methods__rse__objective": {"name": "rse", "keep_relations": True}}, "keep_relations: found no start"),
        ({"methods__rse__objective": {"name": "rse", "keep_relations": True}, "methods__rse__start": "merged"}, "a start without relations"),
    ],
)  # fmt: skip
def test_recipes_without_a_meaning_are_refused(changes: dict[str, Json], said: str) -> None:
    assert said in refusal(**changes)


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
    assert task.score(np.vstack([heads, tails]), scorer).items["rank"].tolist() == ranks(cosines)
    words = [[set(text.split()) for text in texts] for texts in (triples.heads, triples.tails)]
    overlaps = np.array([[len(head & tail) / len(head | tail) for tail in words[1]] for head in words[0]])
    assert task.score_words("word_overlap").items["rank"].tolist() == ranks(overlaps)
