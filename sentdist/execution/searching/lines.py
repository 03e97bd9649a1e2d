"""The lines that a search prints while it runs."""

from __future__ import annotations

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
