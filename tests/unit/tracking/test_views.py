"""What the saved views of an experiment's page show, and in which order."""

from __future__ import annotations

import json

from sentdist.tracking.pages import MAX_VARIED, TAG, SavedView, varied_parameters, views

TRIALS = [
    {"method": "base", "cell": "base", "encoder": "minilm"},
    {"method": "rcl", "cell": "rcl (phis={0.01})", "encoder": "minilm", "phis": "0.01", "seed": "0"},
    {"method": "rcl", "cell": "rcl (phis={0.01})", "encoder": "minilm", "phis": "0.01", "seed": "1"},
    {"method": "rcl", "cell": "rcl (phis={0.02})", "encoder": "minilm", "phis": "0.02", "seed": "0"},
]


def test_parameters_that_differ_come_first_and_constants_not_at_all() -> None:
    assert varied_parameters(TRIALS) == ("method", "seed", "phis")
    wide = [{f"p{number}": str(number * trial) for number in range(30)} for trial in (1, 2)]
    assert len(varied_parameters(wide)) == MAX_VARIED
    assert varied_parameters(TRIALS[:1]) == ()


def test_the_score_that_orders_the_trials_is_the_first_column() -> None:
    given = {"order": "best_dev_score", "metric": "avg_sts", "scores": ["avg_sts", "sts12"], "trials": TRIALS}
    trials, charts, *_ = views(**given)  # type: ignore[arg-type]
    assert trials.state["selectedColumns"][:3] == ["metrics.`best_dev_score`", "metrics.`avg_sts`", "metrics.`sts12`"]  # type: ignore[index]
    assert trials.state["selectedColumns"][-1] == "params.`phis`"  # type: ignore[index]
    assert (trials.state["orderByKey"], trials.state["orderByAsc"]) == ("metrics.`best_dev_score`", False)
    assert charts.id == "sentdist-charts"  # one trial a method: no means
    trials, methods, charts, *_ = views(**given, means=["avg_sts_sd"], difference="avg_sts_vs_base")  # type: ignore[arg-type]
    first = ["metrics.`best_dev_score`", "metrics.`avg_sts`", "metrics.`avg_sts_vs_base`"]
    assert trials.state["selectedColumns"][:3] == first  # type: ignore[index]
    assert methods.state["selectedColumns"] == [*first, "metrics.`avg_sts_sd`", "metrics.`sts12`"]
    assert charts.state["compareRunCharts"][0]["metricKey"] == "avg_sts_vs_base"  # type: ignore[index, call-overload]


def test_every_chart_lies_in_a_section_that_is_open() -> None:
    charted = [view for view in views(order="stsb", metric="stsb", scores=["stsb"], trials=TRIALS) if view.mode == "CHART"]
    assert [view.id for view in charted] == ["sentdist-charts", "sentdist-parallel"]
    for charts in charted:
        _check_cards(charts)
    (card,) = charted[1].state["compareRunCharts"]  # type: ignore[misc]
    assert card["selectedParams"] == ["phis"] and card["showAllRuns"]  # type: ignore[index, call-overload]


def test_shared_stages_are_listed_by_their_kind() -> None:
    """Ordered by time, MLflow would fold them away below their sweep."""
    *_, stages = views(order="stsb", metric="stsb", scores=["stsb"], trials=TRIALS)
    assert (stages.id, stages.state["orderByKey"], stages.state["orderByAsc"]) == ("sentdist-stages", "params.`kind`", True)


def test_trials_that_differ_in_nothing_else_have_no_parallel_coordinates() -> None:
    alike = [{"method": "a", "seed": "0"}, {"method": "b", "seed": "1"}]
    assert "sentdist-parallel" not in [view.id for view in views(order="stsb", metric="stsb", scores=["stsb"], trials=alike)]


def _check_cards(charts: SavedView) -> None:
    cards, sections = charts.state["compareRunCharts"], charts.state["compareRunSections"]
    assert isinstance(cards, list) and isinstance(sections, list)
    opened = {section["uuid"] for section in sections if section["display"]}  # type: ignore[index, call-overload]
    assert {card["metricSectionId"] for card in cards} == opened  # type: ignore[index, call-overload]
    assert len({card["uuid"] for card in cards}) == len(cards)  # type: ignore[index, call-overload]


def test_a_tag_is_what_mlflow_reads_back() -> None:
    (first, *_) = made = views(order="stsb", metric="stsb", scores=["stsb"], trials=TRIALS)
    tags = dict(view.tag(place) for place, view in enumerate(made))
    assert len(tags) == len(made)
    shown = {key: json.loads(value) for key, value in tags.items()}
    assert max(shown.values(), key=lambda view: view["createdAt"])["name"] == first.name
    assert json.loads(shown[TAG + first.id]["state"]) == first.state
    assert all(len(value) < 5000 for value in tags.values())
