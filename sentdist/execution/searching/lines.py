"""The lines that a search prints while it runs."""

from __future__ import annotations

from collections.abc import Sequence

from sentdist.errors import duration
from sentdist.execution.searching.budgets import MOST_KEPT
from sentdist.plan.suggestions import PlannedSearch, suggestion_text
from sentdist.store.searches import SearchRecord, SearchTrial


def trial_line(trial: SearchTrial, name: str, *, is_best: bool) -> str:
    """How a trial stands: its rung and score, or how it ended. name: of the method. is_best: of those of its method that are finished."""
    where = f"trial {trial.number}  {name} ({suggestion_text(trial.suggestion)})"
    if trial.state == "failed":
        return f"{where}: FAILED: {trial.error}"
    if trial.dev is None:
        return f"{where}: begins"
    rung = trial.rungs[-1]
    best = " (best so far)" if is_best else ""
    share = "" if rung.share >= 1.0 else f" at {100 * rung.share:g} %"
    ended = {"pruned": ", goes no further", "running": ", goes on"}.get(trial.state, "")
    return f"{where}: dev {trial.dev:.2f}{share}{best}{ended}, {trial.paid_s:.0f} s"


def too_short(trials: Sequence[SearchTrial], shares: Sequence[float]) -> str:
    """Why a budget of hours has ended without a trial that is finished, and what one takes. shares: at which trials are scored."""
    more = "With a larger budget the search goes on from here."
    furthest = max((trial for trial in trials if trial.rungs), key=lambda trial: trial.rungs[-1].share, default=None)
    if furthest is None:
        return f"Within the budget no trial has come to {100 * shares[0]:g} % of its training. {more}"
    share, seconds = furthest.rungs[-1].share, furthest.paid_s
    takes = f" in {duration(seconds)}: to its end it takes up to {duration(furthest.whole_s)}" if seconds else ""
    return f"Within the budget no trial has come to its end, one to {100 * share:g} %{takes}. {more}"


def without_finalist(method: str, planned: PlannedSearch, record: SearchRecord) -> str:
    """That a method has no finalist, why, and how much time would do: for the longest of its own trials, or of those of others that came
    to their end."""
    own = record.of_method(method)
    if own and all(trial.state == "failed" for trial in own):
        return f"{method}: all of its trials failed, so nothing is chosen."
    said = f"{method}: no trial came to its end, so nothing is chosen, and it is not compared."
    budget = planned.search.budget
    prices = [(trial.whole_s, trial.training_s) for trial in own if trial.rungs and trial.paid_s]
    prices = prices or [(trial.paid_s, trial.paid_s) for trial in record.trials if trial.state == "finished" and trial.paid_s]
    if budget is None or budget.hours is None or not prices:
        return said
    whole_s, training_s = max(prices)
    needed = max((sum(trial.paid_s for trial in record.trials) + training_s) / MOST_KEPT, 3600 * budget.hours + training_s)
    return (
        f"{said} One takes about {duration(whole_s)}: with a budget of about {duration(needed)}, "
        "finalists included, the same command goes on from here."
    )
