"""What the driver of searches says of records: the best by trials, what halving spares, whether a killed search ended as another."""

from __future__ import annotations

from typing import Any

from rayjobs.benchmarks.searches import (
    bests,
    halving_page,
    killed_page,
    on_ray_page,
    searchers_page,
    sentences,
)
from sentdist.store.searches import Finalist, RungReached, SearchBegun, SearchRecord, SearchTrial, TrialEnded


def a_record(devs: list[float], *, pruned: tuple[int, ...] = ()) -> SearchRecord:
    """Trials of 100 sentences, pruned ones of 20."""
    trials = []
    for number, dev in enumerate(devs):
        share = 0.2 if number in pruned else 1.0
        rung = RungReached(number=number, share=share, key=f"k{number}", step=1, dev=dev, last_dev=dev, sentences=int(100 * share), seconds=1.0,
                    paid_sentences=int(100 * share), paid_for=(f"k{number}",))  # fmt: skip
        state: Any = "pruned" if number in pruned else "finished"
        trials.append(SearchTrial(number=number, method="m", suggestion={"a.b": number}, train=f"t{number}", state=state, rungs=(rung,)))
    finalist = Finalist(number=0, method="m", place=1, suggestion={"a.b": 0}, dev=devs[0], cells={0: "c"})
    return SearchRecord(name="s", identity="i", recipe={}, methods={"m": ("a.b",)}, trials=tuple(trials), finalists=(finalist,), reason="x",
                        spent_hours=0.0, events=(SearchBegun(identity="i", recipe={}, methods={}), TrialEnded(number=0, state="finished")))  # fmt: skip


def test_only_finished_trials_count_for_the_best() -> None:
    record = a_record([50.0, 60.0, 55.0, 70.0], pruned=(1,))
    assert bests(record) == [50.0, 55.0, 70.0] and sentences(record) == 320


def test_halving_is_held_against_the_grid() -> None:
    said = halving_page(a_record([50.0, 60.0]), [a_record([50.0, 60.0], pruned=(0,)), a_record([50.0, 60.0], pruned=(1,))])
    assert "Grid of 2 trainings, 200 sentences: best dev score 60.00" in said
    assert "60.0 % of the sentences" in said and "5.00 below the best on average, 10.00 at worst; within 0.1 in 1." in said


def test_searchers_are_compared_in_pairs_of_seeds() -> None:
    said = searchers_page({"random": [[1.0] * 6, [2.0] * 6], "tpe": [[2.0] * 6, [3.0] * 6]})
    assert "over 2 seeds" in said and said.count("+1.00 (+1.00 to +1.00)") == 2


def test_a_search_that_differs_is_reported() -> None:
    counts = {"alone": 3, "killed": 3}
    same = killed_page(a_record([1.0]), a_record([1.0]), moments=[2.0], counts=counts, num_finished=2, num_again=0)
    assert "scores the same" in same and "0 were built again" in same and "0 of them twice" in same
    assert "DIFFER" in killed_page(a_record([1.0]), a_record([2.0]), moments=[2.0], counts=counts, num_finished=2, num_again=0)


def test_the_price_of_a_trial_on_a_cluster_is_what_more_trials_took() -> None:
    said = on_ray_page({25: (6.0, 40.0), 100: (6.0, 55.0)})
    assert "| 100 | 6.0 | 55.0 | 1.83 % |" in said and "One trial more: 0.20 s." in said
