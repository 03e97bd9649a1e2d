"""What a plan remarks on trainings that mean something, but perhaps not what was meant."""

from __future__ import annotations

from sentdist.plan.stage import Json
from sentdist.plan.suggestions import searched
from tests.support.planning import FixedResolver, plan_of, small_recipe

PAIRS: Json = {"source": "nli/pairs", "columns": ["one", "two"]}
BATCHES: Json = {"training.batch_size": [32, 64]}
MLM: Json = {"objective": {"name": "mlm"}}


def _notes(objective: Json, **changes: Json) -> list[str]:
    return _beginnings(plan_of(small_recipe(methods={"tuned": {"objective": objective}}, **changes)).notes)


def _beginnings(notes: tuple[str, ...]) -> list[str]:
    return [" ".join(note.split()[:4]) for note in notes]


def _searched(methods: Json, space: Json) -> list[str]:
    return _beginnings(searched(small_recipe(methods=methods, search={"samples": 2, "space": space}), FixedResolver()).notes)


def test_info_nce_without_a_temperature_is_shown_which_it_has() -> None:
    said, path = ["methods.tuned: info_nce divides cosines"], "methods.tuned.objective.temperature"
    assert _notes({"name": "info_nce"}) == _notes({"name": "info_nce"}, corpus=PAIRS) == said
    assert _notes({"name": "sum", "terms": [{"objective": {"name": "info_nce"}}, MLM]}) == said
    assert _notes({"name": "info_nce"}, sweep=BATCHES) == said, "once, not at each point"
    assert _notes({"name": "info_nce", "temperature": 1.0}) == _notes({"name": "info_nce"}, sweep={path: [0.05, 0.1]}) == []
    methods: Json = {"tuned": {"objective": {"name": "info_nce"}}}
    assert said[0] not in _searched(methods, {path: {"choice": [0.05, 0.1]}})
    assert said[0] in _searched(methods, {"training.batch_size": {"choice": [32, 64]}})


def test_hard_negatives_that_are_not_read_or_not_there_are_reported() -> None:
    assert _notes({"name": "mlm"}) == ["methods.tuned: mlm reads no"] and _notes({"name": "mlm"}, corpus=PAIRS) == []
    assert _notes({"name": "entropy", "phi": 0.01, "hard_negatives": False}) == [], "that is written"
    asked: dict[str, Json] = {"name": "info_nce", "temperature": 0.05, "hard_negatives": True}
    shown = ["methods.tuned: hard_negatives true of"]
    assert _notes(asked, corpus=PAIRS) == _notes(asked, corpus=PAIRS, sweep=BATCHES) == shown
    assert _notes({"name": "sum", "terms": [{"objective": asked}, MLM]}, corpus=PAIRS) == shown
    assert _notes(asked) == _notes({"name": "info_nce", "temperature": 0.05}, corpus=PAIRS) == []


def test_a_learning_rate_with_which_nothing_is_learned_is_reported() -> None:
    asked: Json = {"name": "info_nce", "temperature": 1.0}
    assert _notes(asked, training={"learning_rate": "2e5"}) == ["methods.tuned: learning_rate 200000 is"]
    assert _notes(asked, training={"learning_rate": 0.01}) == []


def test_what_stands_in_a_recipe_and_is_not_built_is_reported() -> None:
    spare: dict[str, Json] = {"objective": {"name": "entropy", "phi": 0.01}, "corpus": "spare", "reported": False}
    corpora: Json = {"spare": {"source": "nli/other"}, "swept": {"source": "nli/other", "limit": 99}}
    methods: dict[str, Json] = {"tuned": {"objective": {"name": "info_nce", "temperature": 1.0}}, "spare": spare}

    def notes() -> list[str]:
        return _beginnings(plan_of(small_recipe(corpora=corpora, methods=methods, sweep={"methods.tuned.corpus": [None, "swept"]})).notes)

    assert notes() == ["methods.spare is not trained:", "corpora.spare is not read:"]
    methods["rcl"] = {"objective": {"name": "rcl"}, "bank": "spare", "phis": [0.01]}
    assert notes() == []
    methods["spare"] = spare | {"view": {"postprocess": "center"}}
    assert notes() == ["methods.spare.view has no effect:"]


def test_a_phi_that_others_take_the_place_of_is_reported() -> None:
    def notes(*, reported: bool = False, sweep: dict[str, Json] | None = None, **others: Json) -> list[str]:
        entropy: Json = {"objective": {"name": "entropy", "phi": 0.5}, "reported": reported}
        rcl: Json = {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01, 0.02]}
        return _beginnings(plan_of(small_recipe(methods={"entropy": entropy, "rcl": rcl, **others}, sweep=sweep or {})).notes)

    shown = ["methods.entropy: phi 0.5 of"]
    assert notes() == notes(sweep={"training.batch_size": [32, 64]}) == notes(sweep={"methods.rcl.phis": [[0.01], [0.02]]}) == shown
    assert notes(reported=True) == [], "its row has it"
    assert notes(sweep={"methods.rcl.phis": [[0.01], [0.5]]}) == [], "one of the points trains it"
    assert notes(other={"objective": {"name": "rcl"}, "bank": "entropy"}) == [], "that bank is of the method as it is"
