"""What a plan remarks on trainings that mean something, but perhaps not what was meant."""

from __future__ import annotations

from sentdist.plan.stage import Json
from sentdist.plan.suggestions import searched
from tests.support.planning import FixedResolver, plan_of, small_recipe

TEMPERATURE = (
    "methods.tuned: info_nce divides cosines by 1, as RCL's Eq. 1 does; SimCSE and multiple-negatives ranking take `temperature: 0.05`."
)


def _notes(objective: Json, **changes: Json) -> tuple[str, ...]:
    return plan_of(small_recipe(methods={"tuned": {"objective": objective}}, **changes)).notes


def test_info_nce_without_a_temperature_is_shown_which_it_has() -> None:
    assert _notes({"name": "info_nce"}) == (TEMPERATURE,)
    assert _notes({"name": "info_nce"}, corpus={"source": "nli/pairs", "columns": ["one", "two"]}) == (TEMPERATURE,), (
        "pairs settle the objective anew"
    )
    assert _notes({"name": "sum", "terms": [{"objective": {"name": "info_nce"}}, {"objective": {"name": "mlm"}}]}) == (TEMPERATURE,)


def test_a_temperature_that_is_written_needs_no_remark() -> None:
    for temperature in [0.05, 1.0]:
        assert _notes({"name": "info_nce", "temperature": temperature}) == ()


def test_a_temperature_that_a_grid_or_a_search_sets_needs_no_remark() -> None:
    path = "methods.tuned.objective.temperature"
    assert _notes({"name": "info_nce"}, sweep={path: [0.05, 0.1]}) == ()
    assert _notes({"name": "info_nce"}, sweep={"training.batch_size": [32, 64]}) == (TEMPERATURE,), "once, not at each point"
    search: dict[str, Json] = {"samples": 2, "space": {path: {"choice": [0.05, 0.1]}}}
    methods: Json = {"tuned": {"objective": {"name": "info_nce"}}}
    assert TEMPERATURE not in searched(small_recipe(methods=methods, search=search), FixedResolver()).notes
    search["space"] = {"training.batch_size": {"choice": [32, 64]}}
    assert TEMPERATURE in searched(small_recipe(methods=methods, search=search), FixedResolver()).notes


def test_columns_that_an_objective_does_not_read_are_reported() -> None:
    shown = "methods.tuned: mlm reads no hard negatives: it trains on 2 of 3 columns of nli-triplets."
    assert _notes({"name": "mlm"}) == (shown,)
    assert _notes({"name": "mlm"}, corpus={"source": "nli/pairs", "columns": ["one", "two"]}) == ()
    assert _notes({"name": "entropy", "phi": 0.01, "hard_negatives": False}) == (), "that is written"


def test_hard_negatives_that_are_asked_for_of_rows_without_any_are_reported() -> None:
    """It was taken for false without a word."""
    pairs: Json = {"source": "nli/pairs", "columns": ["one", "two"]}
    asked: dict[str, Json] = {"name": "info_nce", "temperature": 0.05, "hard_negatives": True}
    shown = ("methods.tuned: hard_negatives true of info_nce has no effect: the rows of nli-pairs have no hard negatives.",)
    assert _notes(asked, corpus=pairs) == shown
    assert _notes({"name": "sum", "terms": [{"objective": asked}, {"objective": {"name": "mlm"}}]}, corpus=pairs) == shown
    assert _notes(asked, corpus=pairs, sweep={"training.batch_size": [32, 64]}) == shown
    assert _notes(asked) == _notes(asked | {"hard_negatives": False}, corpus=pairs) == ()
    assert _notes({"name": "info_nce", "temperature": 0.05}, corpus=pairs) == (), "what is not written is no wish"


def test_a_learning_rate_with_which_nothing_is_learned_is_reported() -> None:
    """It was planned without a word: 2e-5 was meant."""
    found = _notes({"name": "info_nce", "temperature": 1.0}, training={"learning_rate": "2e5"})
    assert [note.partition(" is far")[0] for note in found] == ["methods.tuned: learning_rate 200000"]
    assert _notes({"name": "info_nce", "temperature": 1.0}, training={"learning_rate": 0.01}) == ()


def test_what_stands_in_a_recipe_and_is_not_built_is_reported() -> None:
    """It was ignored without a word."""
    spare: dict[str, Json] = {"objective": {"name": "entropy", "phi": 0.01}, "corpus": "spare", "reported": False}
    corpora: Json = {"spare": {"source": "nli/other"}, "swept": {"source": "nli/other", "limit": 99}}
    methods: dict[str, Json] = {"tuned": {"objective": {"name": "info_nce", "temperature": 1.0}}, "spare": spare}
    sweep: Json = {"methods.tuned.corpus": [None, "swept"]}
    assert plan_of(small_recipe(corpora=corpora, methods=methods, sweep=sweep)).notes == (
        "methods.spare is not trained: it is not reported, and no reported method names it (start, bank, of).",
        "corpora.spare is not read: no method that is trained names it.",
    )
    methods["rcl"] = {"objective": {"name": "rcl"}, "bank": "spare", "phis": [0.01]}
    assert plan_of(small_recipe(corpora=corpora, methods=methods, sweep=sweep)).notes == ()
    methods["spare"] = spare | {"view": {"postprocess": "center"}}
    shown = plan_of(small_recipe(corpora=corpora, methods=methods, sweep=sweep)).notes
    assert shown == ("methods.spare.view has no effect: it is not reported.",)


def test_a_phi_that_others_take_the_place_of_is_reported() -> None:
    """It was replaced by the phis of who names the bank, without a word."""
    shown = ("methods.entropy: phi 0.5 of entropy is not trained: methods.rcl.phis takes its place.",)

    def notes(*, reported: bool = False, sweep: dict[str, Json] | None = None, **others: Json) -> tuple[str, ...]:
        entropy: Json = {"objective": {"name": "entropy", "phi": 0.5}, "reported": reported}
        rcl: Json = {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01, 0.02]}
        return plan_of(small_recipe(methods={"entropy": entropy, "rcl": rcl, **others}, sweep=sweep or {})).notes

    assert notes() == shown
    assert notes(sweep={"training.batch_size": [32, 64]}) == shown, "once, not at each point"
    assert notes(sweep={"methods.rcl.phis": [[0.01], [0.02]]}) == shown
    assert notes(reported=True) == (), "its row has it"
    assert notes(sweep={"methods.rcl.phis": [[0.01], [0.5]]}) == (), "one of the points trains it"
    assert notes(other={"objective": {"name": "rcl"}, "bank": "entropy"}) == (), "that bank is of the method as it is"
    assert notes(other={"objective": {"name": "rcl"}, "start": "entropy", "bank": "entropy"}) == ()
    search: Json = {"samples": 2, "space": {"methods.rcl.phis": {"choice": [[0.01], [0.02]]}}}
    values: Json = {
        "entropy": {"objective": {"name": "entropy", "phi": 0.5}, "reported": False},
        "rcl": {"objective": {"name": "rcl"}, "bank": "entropy"},
    }
    assert shown[0] in searched(small_recipe(methods=values, search=search), FixedResolver()).notes
