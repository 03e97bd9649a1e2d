"""Values that change a score: which sentences, which embeddings, which measure; dev scores come without dropout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from sentdist.learning.checkpoint import DevScore
from sentdist.plan.stage import Json
from sentdist.stages.inputs import folder_of
from sentdist.stages.local import build_here
from sentdist.stages.scores.build import build_scores
from sentdist.stages.train import TrainSession
from tests.parity.wiring.product import Place, opened, planned, stage_of
from tests.parity.wiring.reference import Student
from tests.parity.wiring.scoring import SLACK, base_scores, pairs_of, scored, spearman_of
from tests.parity.wiring.training_cases import O
from tests.support.building import run_local

pytestmark = pytest.mark.parity
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
