"""A record gives back the stage that it was made of: the same fields, inputs and key, for every kind of every shipped recipe."""

from __future__ import annotations

import hashlib
import json

import pytest

from sentdist.recipe.objectives import phi_of
from sentdist.recipe.stage import KEY_LENGTH, Stage
from sentdist.recipe.stages import STAGES, Bank, Overlap, Scores, Train
from sentdist.store import record
from sentdist.store.record import MissingStage, Record, restored
from tests.support.every_stage import one_of_each, plan_of_all_kinds, record_of, records_of
from tests.support.planning import RECIPES, shipped_plan


@pytest.fixture(autouse=True)
def _nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_held", {})


def digest_of(stage: Stage) -> str:
    """The key, computed from what was given back and not taken from the record."""
    text = json.dumps(stage.canonical(), sort_keys=True, separators=(",", ":")).replace('"generated/', '"embedded/')
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def read_back(stage: Stage) -> Record:
    """A record as a store gives it."""
    return Record.read(record_of(stage).sealed)


@pytest.mark.parametrize("name", ["demo.yaml", "papers/rse_table5.yaml", "options/triplet_accuracy.yaml"])
def test_every_stage_of_a_shipped_recipe_comes_back(name: str) -> None:
    """With an overlap of each of its dev tasks."""
    stages: list[Stage] = list(shipped_plan(RECIPES / name).stages)
    chosen = [stage.selection for stage in stages if isinstance(stage, Train) and stage.selection]
    stages += [Overlap(of=task, tasks=()) for task in {task for selection in chosen for task in selection.tasks}]
    records = {stage.key: read_back(stage) for stage in stages}
    for stage in stages:
        found = restored(stage.key, records)
        assert found == stage and found.inputs == stage.inputs
        assert found.key == digest_of(found) == stage.key


def test_every_kind_of_stage_comes_back() -> None:
    assert set(one_of_each()) == set(STAGES)
    for kind, stage in one_of_each().items():
        records = records_of(plan_of_all_kinds()) | {stage.key: read_back(stage)}
        assert restored(stage.key, records) == stage, kind


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
