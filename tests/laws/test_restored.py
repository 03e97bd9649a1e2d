"""A record gives back the stage that it was made of: the same fields, inputs and key, for every kind of every shipped recipe."""

from __future__ import annotations

import hashlib
import json
import time

import pytest

from sentdist.plan.objectives import phi_of
from sentdist.plan.stage import KEY_LENGTH, Stage
from sentdist.plan.stages import STAGES, Bank, Overlap, Rung, Scores, Train
from sentdist.store import record as module
from sentdist.store.record import MissingStage, Record, restored
from tests.support.every_stage import one_of_each, plan_of_all_kinds, record_of, records_of
from tests.support.planning import RECIPES, shipped_plan

NAMES = sorted(path.relative_to(RECIPES).as_posix() for path in RECIPES.rglob("*.yaml"))


@pytest.fixture(autouse=True)
def _nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_held", {})


def digest_of(stage: Stage) -> str:
    """The key, computed from what was given back and not taken from the record."""
    text = json.dumps(stage.canonical(), sort_keys=True, separators=(",", ":")).replace('"generated/', '"embedded/')
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def read_back(stage: Stage) -> Record:
    """A record as a store gives it."""
    return Record.read(record_of(stage).sealed)


@pytest.mark.parametrize("name", NAMES)
def test_every_stage_of_a_shipped_recipe_comes_back(name: str) -> None:
    stages = shipped_plan(RECIPES / name).stages
    records = {stage.key: read_back(stage) for stage in stages}
    for stage in stages:
        found = restored(stage.key, records)
        assert found == stage and found.inputs == stage.inputs
        assert found.key == digest_of(found) == stage.key


@pytest.mark.parametrize("kind", sorted(STAGES))
def test_every_kind_of_stage_comes_back(kind: str) -> None:
    stage = one_of_each()[kind]
    records = records_of(plan_of_all_kinds()) | {stage.key: read_back(stage)}
    assert restored(stage.key, records) == stage


@pytest.mark.parametrize("name", ["demo.yaml", "papers/rse_table5.yaml", "papers/rse_table6.yaml", "options/triplet_accuracy.yaml"])
def test_an_overlap_of_each_dev_task_comes_back(name: str) -> None:
    trainings = [stage for stage in shipped_plan(RECIPES / name).stages if isinstance(stage, Train) and stage.selection]
    for task in {task for train in trainings if train.selection for task in train.selection.tasks}:
        stage = Overlap(of=task, tasks=())
        assert restored(stage.key, {stage.key: read_back(stage)}) == stage


def trained() -> tuple[Train, dict[str, Record]]:
    plan = shipped_plan(RECIPES / "demo.yaml")
    return next(stage for stage in plan.stages if isinstance(stage, Train) and stage.banks), records_of(plan)


def test_an_input_that_is_gone_keeps_its_key_and_the_rest_its_values() -> None:
    """A bank takes much room, and may be dropped once its encoder is trained."""
    stage, records = trained()
    first, *others = stage.banks
    del records[first.key]
    found = restored(stage.key, records)
    assert isinstance(found, Train) and isinstance(found.banks[0], MissingStage)
    assert [bank.key for bank in found.banks] == [first.key, *(one.key for one in others)] and found.banks[1:] == tuple(others)
    assert (found.objective, found.training, found.corpus, found.selection) == (
        stage.objective, stage.training, stage.corpus, stage.selection,
    )  # fmt: skip
    assert found.canonical() == stage.canonical()
    assert restored(stage.key, records | {first.key: record_of(first)}) == stage, "what comes back is there again"


def test_what_is_behind_a_missing_input_comes_back_with_it() -> None:
    stage, records = trained()
    encoder = stage.banks[0].encoder
    lost = {key: record for key, record in records.items() if key != encoder.key}
    found = restored(stage.key, lost)
    assert isinstance(found, Train) and isinstance(found.banks[0].encoder, MissingStage)
    assert restored(stage.key, records) == stage


def test_a_rung_comes_back_with_its_training() -> None:
    """It takes in what its training does, and may be there without it."""
    stage, records = trained()
    rung = Rung(of=stage, share=0.5)
    alone = restored(rung.key, {rung.key: record_of(rung)})
    assert isinstance(alone, Rung) and isinstance(alone.of, MissingStage) and alone.of.key == stage.key
    assert restored(rung.key, records | {rung.key: record_of(rung)}) == rung


def test_nothing_is_given_back_of_what_is_gone() -> None:
    assert restored(None, {}) is None and restored("0" * 16, {}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "a kind of another version"},
        {"stage": {}},
        {"stage": {"fields": {"field_of_another_version": 1}}},
        {"stage": {"fields": {"training": {"batch_size": "many"}}}},
        {"stage": {"fields": {"seed": 1}}},
    ],
)
def test_a_record_of_another_version_is_not_understood(change: dict[str, object]) -> None:
    stage, records = trained()
    fields = records[stage.key].stage["fields"]
    given = change.get("stage")
    if isinstance(given, dict) and given and given["fields"] != {"seed": 1}:
        given = {"fields": {**fields, **given["fields"]}}  # type: ignore[dict-item]
    records[stage.key] = records[stage.key].model_copy(update=change | ({"stage": given} if given is not None else {}))
    assert restored(stage.key, records) is None
    bank = next(one for one in one_of_each().values() if isinstance(one, Bank))
    assert isinstance(restored(bank.key, {bank.key: record_of(bank)}), Bank), "others are"


def test_a_key_that_is_known_does_not_stand_for_other_fields() -> None:
    stage, records = trained()
    assert restored(stage.key, records) == stage
    record = records[stage.key]
    fields = record.stage["fields"]
    assert isinstance(fields, dict)
    changed = record.model_copy(update={"stage": record.stage | {"fields": fields | {"seed": 99}}})
    found = restored(stage.key, records | {stage.key: changed})
    assert isinstance(found, Train) and found.seed == 99


def test_an_older_record_of_generated_sources_comes_back_in_words_of_today() -> None:
    stage, _ = trained()
    corpus = stage.corpus.model_copy(update={"source": "generated/nli"})
    old = record_of(corpus)
    old = old.model_copy(update={"stage": json.loads(json.dumps(old.stage).replace('"generated/', '"embedded/'))})
    found = restored(old.key, {old.key: Record.read(old.sealed)})
    assert found == corpus and digest_of(found) == old.key


def test_a_stage_of_an_older_revision_keeps_its_key() -> None:
    stage, records = trained()
    first = records[stage.key]
    records[stage.key] = first.model_copy(update={"key": "f" * 16, "stage": first.stage | {"revision": 0}})
    scores = record_of(Scores(encoder=stage, tasks=()))
    scores = scores.model_copy(update={"stage": json.loads(json.dumps(scores.stage).replace(stage.key, "f" * 16))})
    found = restored(scores.key, records | {"f" * 16: records[stage.key], scores.key: scores})
    assert isinstance(found, Scores) and isinstance(found.encoder, Train)
    assert found.encoder.key == "f" * 16 and phi_of(found.encoder.objective) == phi_of(stage.objective)


def test_a_thousand_records_come_back_at_once_and_then_for_nothing() -> None:
    plan = shipped_plan(RECIPES / "sweeps" / "rcl_grid.yaml")
    records = records_of(plan)
    started = time.process_time()
    for key in records:
        restored(key, records)
    first_s, started = time.process_time() - started, time.process_time()
    for _ in range(10):
        for key in records:
            restored(key, records)
    again_s = (time.process_time() - started) / 10
    assert first_s < 0.005 * len(records) and again_s < first_s / 3
