"""What a Bayesian comparison reports of two encoders."""

from __future__ import annotations

from sentdist.evaluation.significance import Difference, practical
from sentdist.report.evaluated import Compared, ComparedLine, second_opinion


def _line(task: str, difference: Difference, measure: str = "spearman") -> ComparedLine:
    return ComparedLine(task=task, measure=measure, num_items=60, ours=70.0 + difference.difference, theirs=70.0, difference=difference)


def test_it_reads_standard_errors_and_not_the_width_of_intervals() -> None:
    """Of three groups of items Student's interval is 2.2 times as wide as that of a normal distribution."""
    reported = Difference(difference=2.0, error=1.5, low=2.0 - 1.5 * 4.303, high=2.0 + 1.5 * 4.303, p=0.3, about="items")
    expected = practical(2.0, 1.5, rope=1.0)
    lines = list(second_opinion(Compared(lines=(_line("stsb", reported),), sentence="", notes=()), rope=1.0))
    assert f"stsb: first better {expected.better:.2f}, equal {expected.same:.2f}" in lines[1]


def test_in_how_many_tasks_the_first_is_higher_is_reported_of_several_alone() -> None:
    lines = tuple(
        _line(task, Difference(difference=2.0, error=1.5, low=-1.0, high=5.0, p=0.2, about="items")) for task in ("stsb", "sickr")
    )
    one, both = (list(second_opinion(Compared(lines=some, sentence="", notes=()), rope=1.0)) for some in (lines[:1], lines))
    assert len(one) == 2 and not any("P(first" in line for line in one)
    assert both[-1].startswith("  P(first scores higher) over 2 tasks: 1.00, 95 % 0.16 to 1.00, not distinguished from chance")


def test_points_of_several_measures_say_nothing_of_another_task() -> None:
    reported = Difference(difference=2.0, error=1.5, low=-1.0, high=5.0, p=0.2, about="items")
    for measures, is_reported in ((("map", "map", "map"), True), (("map", "spearman", "map"), False)):
        lines = tuple(_line(str(place), reported, measure) for place, measure in enumerate(measures))
        opinion = list(second_opinion(Compared(lines=lines, sentence="", notes=()), rope=1.0))
        assert any("another task" in line for line in opinion) is is_reported and "over 3 tasks" in opinion[-1]


def test_without_a_standard_error_it_says_nothing() -> None:
    bare = Difference(difference=2.0, about="nothing", reason="one seed and no test items")
    assert next(iter(second_opinion(Compared(lines=(_line("stsb", bare),), sentence="", notes=()), rope=1.0))).endswith(
        "has a standard error."
    )
