"""What is said of a search while it runs."""

from __future__ import annotations

from sentdist.plan.suggestions import told
from sentdist.store.searches import SearchRecord, SearchTrial


def trial_line(record: SearchRecord, trial: SearchTrial, name: str) -> str:
    """How a trial stands: its rung and score, or how it ended. name: of the method."""
    where = f"trial {trial.number}  {name} ({told(trial.suggestion)})"
    if trial.state == "failed":
        return f"{where}: FAILED: {trial.error}"
    if trial.dev is None:
        return f"{where}: begins"
    others = [other.dev for other in record.of_method(trial.method) if other.number != trial.number and other.state == "finished"]
    rung = trial.rungs[-1]
    best = " (best so far)" if trial.state == "finished" and all(dev is None or trial.dev > dev for dev in others) else ""
    share = "" if rung.share >= 1.0 else f" at {100 * rung.share:g} %"
    ended = {"pruned": ", goes no further", "running": ", goes on"}.get(trial.state, "")
    return f"{where}: dev {trial.dev:.2f}{share}{best}{ended}, {trial.paid_s:.0f} s"
