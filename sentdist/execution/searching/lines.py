"""The lines that a search prints while it runs."""

from __future__ import annotations

from collections.abc import Sequence

from sentdist.errors import duration
from sentdist.plan.suggestions import suggestion_text
from sentdist.store.searches import SearchTrial


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
    takes = f" in {duration(seconds)}: to its end it takes up to {duration(seconds / share)}" if seconds else ""
    return f"Within the budget no trial has come to its end, one to {100 * share:g} %{takes}. {more}"
