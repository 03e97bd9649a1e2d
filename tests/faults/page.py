"""The table of a soak: for each kind of fault how often it was injected, how its rounds ended, and how long recovery took."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from tests.faults.kinds import FAULTS
from tests.faults.rounds import Injected, Outcome

HEAD = "| fault | injected | rounds as undisturbed | seconds of recovery: median (largest) | the user |\n|---|---|---|---|---|"


def page(outcomes: Sequence[Outcome], *, command: str, machine: str) -> str:
    """`infra/benchmarks/faults.md`. machine: what it ran on and what else ran there."""
    good = sum(not outcome.wrong for outcome in outcomes)
    submitted = sum(outcome.submissions for outcome in outcomes)
    reported = [
        "# Faults",
        "",
        f"`{command}`: **{good} of {len(outcomes)} rounds** ended as the undisturbed run, bit for bit, with nothing built twice and nothing "
        f"left. Sweeps were submitted {submitted} times, a round took {_times([outcome.seconds for outcome in outcomes])} s.",
        "",
        machine,
        "",
        "A round is one sweep of 10 stages with up to three faults, on two hosts with a CPU each; `tests/faults/kinds.py` says what each kind "
        "is. Recovery: from the injection, including the seconds that the fault lasts, until all stages that were being made have come "
        "further than they were. Faults of one round are counted together, so a round that ended badly stands in the row of each of its faults.",
        "",
        HEAD,
        *(row for fault in FAULTS if (row := _row(fault.name, fault.then, outcomes))),
        "",
        *_wrong(outcomes),
    ]
    return "\n".join(reported).rstrip() + "\n"


def _row(name: str, then: str, outcomes: Sequence[Outcome]) -> str | None:
    rounds = [outcome for outcome in outcomes if any(one.fault == name for one in _happened(outcome))]
    injected = [one for outcome in rounds for one in _happened(outcome) if one.fault == name]
    if not injected:
        return None
    good = sum(not outcome.wrong for outcome in rounds)
    seconds = [one.recovery_s for one in injected if one.recovery_s is not None]
    return f"| {name} | {len(injected)} | {good} of {len(rounds)} | {_times(seconds)} | {'submits again' if then == 'submit again' else 'does nothing'} |"


def _wrong(outcomes: Iterable[Outcome]) -> list[str]:
    lines = [f"- round {outcome.number} ({outcome.variant}): {'; '.join(outcome.wrong)}" for outcome in outcomes if outcome.wrong]
    return ["## What was wrong", "", *lines] if lines else []


def _happened(outcome: Outcome) -> list[Injected]:
    return [one for one in outcome.injected if one.at_s is not None]


def _times(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.0f} ({max(seconds):.0f})" if seconds else "–"
