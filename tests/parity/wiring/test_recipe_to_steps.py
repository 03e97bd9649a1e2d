"""Values that change batches, dropout, stops, starts, banks, dev scores and evaluations: what happens is what the recipe says."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor

from sentdist.data.corpus import OpenedCorpus
from sentdist.learning.bank import FileBank
from sentdist.learning.checkpoint import DevScore
from sentdist.learning.encoder.pooling import Dropout
from sentdist.learning.encoder.tokens import TokenBatch
from sentdist.learning.engine import TorchEngine
from sentdist.learning.loop import StepReport
from sentdist.recipe.stage import Json, topological
from sentdist.recipe.stages import Scores
from sentdist.stages.context import folder_of
from sentdist.stages.local import build_here
from sentdist.stages.scores import build_scores
from sentdist.stages.train import TrainSession
from tests.parity.wiring.declared import O
from tests.parity.wiring.product import STILL, TRAINING, Place, opened, planned, run, stage_of, start_of
from tests.parity.wiring.reference import Student
from tests.parity.wiring.test_recipe_to_loss import BANK
from tests.support.building import run_local

pytestmark = pytest.mark.parity


class Watched(TorchEngine):
    """An engine that writes down the words of every batch."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.batches: list[list[str]] = []

    def encode(self, tokens: TokenBatch) -> Tensor:
        bounds = tokens.boundaries.tolist()
        tokenizer = self.learner.encoder.tokenizer
        ids = [tokens.token_ids[first:last].tolist() for first, last in itertools.pairwise(bounds)]
        self.batches.append([tokenizer.decode(one, skip_special_tokens=True) for one in ids])
        return super().encode(tokens)


def watched(
    place: Place, changes: Mapping[str, Json], *, family: str = "triplets"
) -> tuple[list[list[str]], list[StepReport], TrainSession]:
    plan, context = planned(place, family, changes)
    stage = stage_of(plan)
    for needed in topological((stage,))[:-1]:
        build_here(needed, context)
    session = TrainSession(stage, context, make_engine=Watched, bank=None)
    steps = [event for event in session.events() if isinstance(event, StepReport)]
    assert isinstance(session.engine, Watched)
    return session.engine.batches, steps, session


def test_a_batch_has_so_many_rows(place: Place) -> None:
    for size in (3, 4):
        batches, steps, session = watched(place, {"training.batch_size": size, "training.epochs": 1})
        assert len(steps) == 8 // size and all(len(batch) == 3 * size for batch in batches)
        assert all(step.num_sentences == 3 * size for step in steps)
        assert [step.lr for step in steps] == pytest.approx([TRAINING["learning_rate"], TRAINING["learning_rate"] / 2])  # rows left over
        assert session.finish(place.root / f"of-{size}")["num_steps_planned"] == len(steps)


def test_a_seed_gives_another_order_another_head_and_other_dropout(place: Place) -> None:
    few: dict[str, Json] = {"training.batch_size": 4, "training.epochs": 1, "encoder.pooling": "cls_mlp", "methods.m.regularizers": {}}

    def of(**changes: Json) -> tuple[list[list[str]], list[float], Tensor]:
        batches, steps, session = watched(place, {**few, **changes})
        return batches, [step.loss for step in steps], session.engine.weights()["encoder.head.dense.weight"]

    first, again, other = of(seeds=[3]), of(seeds=[3]), of(seeds=[4])
    assert first[0] == again[0] and first[1] == again[1]
    assert first[0] != other[0] and first[1] != other[1] and not torch.equal(first[2], other[2])
    starts = []
    for seed in (3, 3, 4):
        session = opened(place, "triplets", {**few, "seeds": [seed]}).session
        starts.append((session.engine.weights()["encoder.head.dense.weight"], torch.rand(4)))  # what dropout would draw
    assert all(torch.equal(one, same) and not torch.equal(one, another) for one, same, another in zip(*starts, strict=True))
    fixed, _ = planned(place, "triplets", {**few, "seeds": [0, 1, 2], "methods.m.seed": 3})
    assert len(fixed.trials) == 1 and stage_of(fixed).seed == 3


def test_dropouts_are_those_of_the_recipe_or_of_the_checkpoint(place: Place) -> None:
    for regularizers, hidden, attention in (
        ({}, 0.2, 0.25), ({"attention_dropout": 0.0, "hidden_dropout": 0.5}, 0.5, 0.0), ({"hidden_dropout": 0.0, "drophead": 0.4}, 0.0, 0.25),
    ):  # fmt: skip
        made = opened(place, "triplets", {"methods.m.regularizers": regularizers}).session.engine.learner.encoder
        assert {module.p for module in made.modules() if isinstance(module, Dropout)} == {hidden, attention}, regularizers


def stopped_at(losses: list[float], *, patience: int, interval: int) -> int:
    """RCL's rule by hand: mean losses of intervals, stop when so many in a row bring no new lowest."""
    lowest, waited = float("inf"), 0
    for end in range(interval, len(losses) + 1, interval):
        mean = sum(losses[end - interval : end]) / interval
        waited = 0 if mean < lowest else waited + 1
        lowest = min(lowest, mean)
        if waited == patience:
            return end
    return len(losses)


def test_training_stops_by_the_rule(place: Place) -> None:
    jumpy: dict[str, Json] = {"training.batch_size": 2, "training.epochs": 10, "training.learning_rate": 0.03, f"{O}.temperature": 0.05}
    losses = list(run(opened(place, "triplets", jumpy).session).losses)
    assert len(losses) == 40
    expected = {}
    for reading, patience, fraction, interval in (
        ("step", 3, None, 1),
        ("step", 6, None, 1),
        ("interval", 2, 0.4, 2),  # 1.6 steps
        ("interval", 2, 1.0, 4),
    ):
        stopping: dict[str, Json] = {"reading": reading, "patience": patience} | (
            {} if fraction is None else {"interval_fraction": fraction}
        )
        steps = len(run(opened(place, "triplets", {**jumpy, "methods.m.stopping": stopping}).session).losses)
        expected[reading, patience, fraction] = stopped_at(losses, patience=patience, interval=interval)
        assert steps == expected[reading, patience, fraction], stopping
    assert len(set(expected.values())) == len(expected) and max(expected.values()) < 40


def test_training_starts_from_what_is_named(place: Place) -> None:
    first: Json = {"objective": {"name": "info_nce"}, "regularizers": STILL, "training": {"learning_rate": 0.05}, "reported": False}
    name = "embeddings.word_embeddings.weight"

    def words(**changes: Json) -> Tensor:
        made = opened(place, "triplets", {key.replace("_at_", "."): value for key, value in changes.items()})
        return made.session.engine.weights()[f"encoder.model.{name}"]

    pretrained, other = (dict(Student(folder).model.named_parameters())[name].detach().float() for folder in (place.encoder, place.deeper))
    assert torch.equal(words(), pretrained)
    assert torch.equal(words(encoder_at_checkpoint=str(place.deeper)), other) and not torch.equal(pretrained, other)
    random = words(encoder_at_initialization="random")
    assert random.shape == pretrained.shape and float((random - pretrained).abs().mean()) > 0.1 and 0.01 < float(random.std()) < 0.03
    made = opened(place, "triplets", {"methods.first": first, "methods.m.start": "first"})
    assert made.stage.start is not None
    trained = dict(Student(folder_of(made.stage.start, made.context)).model.named_parameters())[name].detach().float()
    assert torch.equal(made.session.engine.weights()[f"encoder.model.{name}"], trained) and not torch.equal(trained, pretrained)


def test_heads_are_kept_when_asked(place: Place) -> None:
    for family, field, objective, name in (
        ("graded", "keep_head", {"name": "regression", "slope": 2.0, "threshold": 0.25}, "head.linear.weight"),
        ("relations", "keep_relations", {"name": "rse"}, "table.vectors.weight"),
    ):
        first: Json = {"objective": objective, "regularizers": STILL, "reported": False}
        for keeps in (True, False):
            made = opened(place, family, {"methods.first": first, "methods.m.start": "first", O: {**objective, field: keeps}})
            before = opened(place, family, {"methods.m": first | {"reported": True}})
            run(before.session)
            assert torch.equal(start_of(made.session)[name], start_of(before.session)[name]) is keeps


def test_banks_hold_what_the_entropy_encoders_say(place: Place) -> None:
    base = {**BANK, O: {"name": "rcl"}}
    tables = {}
    for name, changes in {
        "float32": {}, "float16": {"methods.m.bank_dtype": "float16"}, "short": {"methods.m.training": {"max_length": 4}},
        "bf16": {"methods.m.training": {"precision": "bf16"}},
    }.items():  # fmt: skip
        made = opened(place, "triplets", {**base, **changes})
        assert [bank.encoder.objective.phi for bank in made.stage.banks] == [0.3, 0.6]
        corpus = OpenedCorpus.open(folder_of(made.stage.corpus, made.context))
        sentences = corpus.sentences(np.arange(corpus.num_sentences))
        stored = FileBank([folder_of(bank, made.context) for bank in made.stage.banks]).rows(np.arange(len(sentences)))
        assert stored.dtype == (torch.float16 if name == "float16" else torch.float32)
        found = stored.float()
        students = [Student(folder_of(bank.encoder, made.context), max_length=4 if name == "short" else 20) for bank in made.stage.banks]
        said = torch.stack([student.encode(sentences).detach() for student in students])
        said = said.half().float() if name == "float16" else said.float()
        torch.testing.assert_close(found, said, rtol=0.05 if name == "bf16" else 1e-3, atol=0.05 if name == "bf16" else 1e-4)
        tables[name] = found
    exact = {name: float((table - table.half().float()).abs().max()) == 0.0 for name, table in tables.items()}
    assert exact == {"float32": False, "float16": True, "short": False, "bf16": False}
    assert float((tables["short"] - tables["float32"]).abs().max()) > 0.1 and float((tables["bf16"] - tables["float32"]).abs().max()) > 1e-3
    phis = opened(place, "triplets", {**base, "methods.m.phis": [0.6]}).stage.banks
    assert len(phis) == 1


NOISY: dict[str, Json] = {
    "methods.m.regularizers": {"attention_dropout": 0.3, "hidden_dropout": 0.3}, "training.batch_size": 4, "training.epochs": 2,
    f"{O}.temperature": 0.05,
}  # fmt: skip


def watched_scores(
    place: Place, changes: Mapping[str, Json], *, family: str = "triplets"
) -> tuple[list[tuple[DevScore, Student]], TrainSession]:
    """Each dev score with the weights of that moment."""
    made = opened(place, family, changes)
    found = []
    for event in made.session.events():
        if isinstance(event, DevScore):
            student = Student(place.encoder, max_length=40)
            student.load({name.removeprefix("encoder.model."): tensor for name, tensor in made.session.engine.weights().items()})
            found.append((event, student))
    return found, made.session


def test_dev_scores_are_those_of_the_weights_without_dropout(place: Place) -> None:
    rows = pairs_of(place, "dev")
    for every, steps in ((0.5, [1, 2, 3, 4]), (1.0, [2, 4])):
        found, session = watched_scores(place, {**NOISY, "selection": {"task": "stsb-dev", "every_fraction": every}})
        assert [event.step for event, _ in found] == steps
        assert [event.score for event, _ in found] == pytest.approx([spearman_of(student, rows) for _, student in found], abs=SLACK)
        best = max(found, key=lambda one: one[0].score)[0]
        assert (session.progress.best_step, session.progress.best_score) == (best.step, best.score)
        assert session.engine.learner.training
    chosen = {"selection": {"task": "stsb-dev", "every_fraction": 0.5}}
    plan, context = planned(place, "triplets", {**NOISY, **chosen, "training.learning_rate": 0.03, "training.epochs": 4})
    run_local(plan, context)
    stage = stage_of(plan)
    record = context.store.get(stage)
    assert record is not None and record.record.results["best_step"] is not None
    kept = spearman_of(Student(folder_of(stage, context), max_length=40), rows)
    assert kept == pytest.approx(record.record.results["best_dev_score"], abs=SLACK)
    left = stage_of(planned(place, "triplets", {**NOISY, **chosen, "methods.m.select": False})[0])
    assert left.selection is None


@pytest.mark.parametrize(("rows", "every", "steps"), [(6, 0.67, [2, 3]), (8, 0.75, [4]), (8, 0.5, [2, 4])])
def test_dev_is_scored_each_interval_but_not_within_half_a_one_of_the_end(place: Place, rows: int, every: float, steps: list[int]) -> None:
    """Of three steps the second is half an interval of two away from the end, of four the third is nearer than half of three."""
    few: dict[str, Json] = {"corpus.limit": rows, "training.batch_size": 2, "training.epochs": 1}
    found, _ = watched_scores(place, {**few, "selection": {"task": "stsb-dev", "every_fraction": every}})
    assert [event.step for event, _ in found] == steps


@pytest.mark.parametrize(
    "view",
    [{}, {"channels": [3, 11]}, {"postprocess": "center"}, {"postprocess": "whiten"}, {"channels": [4, 20], "postprocess": "center"}],
)
def test_views_choose_and_score_as_said(place: Place, view: dict[str, Any]) -> None:
    asked = {"channels": view.get("channels"), "after": view.get("postprocess", "none")}
    found, _ = watched_scores(
        place, {**NOISY, "training.epochs": 1, "selection": {"task": "stsb-dev", "every_fraction": 1.0, "view": view}}
    )
    slack = 1.0 if asked["after"] == "whiten" else SLACK  # the last of 32 directions holds float32's rounding
    for event, student in found:
        assert event.score == pytest.approx(spearman_of(student, pairs_of(place, "dev"), **asked), abs=slack)
    plan, context = planned(place, "triplets", {"methods": {"m": {"view": view}}, "evaluation.max_length": 40})
    (artifact,) = [build_here(stage, context) for stage in plan.stages]
    expected = spearman_of(Student(place.encoder, max_length=40), pairs_of(place, "test"), **asked, each_once=True)
    assert artifact.record.results["stsb"] == pytest.approx(expected, abs=slack)


def test_evaluations_encode_as_said(place: Place) -> None:
    rows = pairs_of(place, "test")
    whole = spearman_of(Student(place.encoder, max_length=40), rows)
    expected = {"whole": (base_scores(place), whole)}
    expected["short"] = base_scores(place, evaluation_at_max_length=7), spearman_of(Student(place.encoder, max_length=7), rows)
    for pooling in ("cls", "first_last", "cls_last_five"):
        stage = base_scores(place, encoder_at_pooling=pooling)
        expected[pooling] = stage, spearman_of(Student(place.encoder, max_length=40, pooling=pooling), rows)
    expected["layers"] = base_scores(place, encoder_at_layers=1), spearman_of(Student(place.encoder, max_length=40, layers=1), rows)
    expected["other"] = base_scores(place, encoder_at_checkpoint=str(place.deeper)), spearman_of(Student(place.deeper, max_length=40), rows)
    found = {}
    for name, (stage, said) in expected.items():
        if name == "other":
            _, context = planned(place, "triplets", {"methods": {"m": {}}, "encoder.checkpoint": str(place.deeper)})
            found[name] = build_scores(stage, context).record.results["stsb"]
        else:
            found[name] = scored(place, stage)["stsb"]
        assert found[name] == pytest.approx(said, abs=SLACK), name
    assert len(set(found.values())) == len(found)
    kinds = []
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, given, out: kinds.append(out.dtype) if isinstance(module, torch.nn.Linear) else None
    )
    scored(place, base_scores(place, evaluation_at_precision="bf16"))
    hook.remove()
    assert set(kinds) == {torch.bfloat16}


SLACK = 0.1  # × 100: two neighbours among 40 pairs that float32 puts the other way round


def pairs_of(place: Place, split: str, *, family: str = "triplets", source: str = "sts/stsb") -> list[dict[str, Any]]:
    return [row for row in pq.read_table(place.root / family / f"{source}.parquet").to_pylist() if row["split"] == split]


def cosines_of(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.asarray((one * other).sum(1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)))


def spearman_of(
    student: Student,
    rows: Sequence[Mapping[str, Any]],
    *,
    channels: tuple[int, int] | None = None,
    after: str = "none",
    each_once: bool = False,
) -> float:
    """× 100, by scipy. each_once: whether a sentence counts once in mean and covariance."""
    with torch.no_grad():
        table = {
            text: e.numpy()
            for text in dict.fromkeys(t for r in rows for t in (r["sentence1"], r["sentence2"]))
            for e in student.encode([text])
        }
    first, second = (
        np.stack([table[row[name]] for row in rows])[:, slice(*(channels or (0, None)))] for name in ("sentence1", "sentence2")
    )
    whole = np.stack(list(table.values()))[:, slice(*(channels or (0, None)))] if each_once else np.concatenate([first, second])
    if after != "none":
        first, second = first - whole.mean(0), second - whole.mean(0)
    if after == "whiten":
        values, vectors = np.linalg.eigh(np.cov(whole.T, bias=True))
        is_there = values > 1e-9 * values.max()  # what is not may be below 0 by rounding
        root = vectors[:, is_there] / np.sqrt(values[is_there])
        first, second = first @ root, second @ root
    return 100 * float(spearmanr(cosines_of(first, second), [row["score"] for row in rows])[0])


def scored(place: Place, stage: Scores, family: str = "triplets") -> dict[str, Json]:
    _, context = planned(place, family, {"methods": {"m": {}}})
    return build_scores(stage, context).record.results


def base_scores(place: Place, family: str = "triplets", **changes: Json) -> Scores:
    plan, _ = planned(place, family, {"methods": {"m": {}}, **{name.replace("_at_", "."): value for name, value in changes.items()}})
    return plan.trials[0].scores
