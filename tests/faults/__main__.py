"""The soak as a command: `python -m tests.faults --rounds 100 --seed 0`.

Random faults (kinds.py) are injected into real sweeps of one and two workers, with torch and DeepSpeed, on a cluster of two hosts (network
namespaces: it takes root and Linux). Afterwards all weights, banks, tables and scores must equal those of an undisturbed run bit for bit;
nothing may have been built twice, MLflow must be whole, and nothing may be left on the cluster. Each failed round prints the command that
repeats it alone and where its logs lie.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from sentdist.errors import counted
from tests.cluster.hosts import why_not
from tests.cluster.redis_host import why_no_redis
from tests.faults.environment import running_environment
from tests.faults.kinds import FAULTS, fault_named, ready
from tests.faults.page import page
from tests.faults.rounds import Outcome, look_later, outcome_of, play, undisturbed
from tests.faults.selection import VARIANT_WEIGHTS, RoundPlan, plan_round

OUTCOMES = "outcomes.jsonl"


def main() -> int:
    """Play the rounds that the arguments ask for; 1 if something was wrong."""
    options = _options()
    if reason := why_not() or (why_no_redis() if options.with_redis else None):
        print(reason)
        return 2
    results: Path = options.results or Path(tempfile.mkdtemp(prefix="sd-soak-results-", dir="/tmp"))
    named = [fault for fault in FAULTS if fault.name in (options.fault or ())]
    chosen = named or ready(with_redis=options.with_redis)
    numbers = range(options.rounds) if options.only is None else options.only
    if options.resume:
        numbers = not_played(numbers, options.seed, outcomes_in(results))
    plans = [plan_round(options.seed, number, chosen, options.variant or tuple(VARIANT_WEIGHTS)) for number in numbers]
    print(f"{counted(len(plans), 'round')}, {len(chosen)} kinds of fault, results in {results}", flush=True)
    late = _play(plans, results, with_redis=options.with_redis) if plans else []
    outcomes = outcomes_in(results)
    num_wrong = sum(bool(outcome.wrong) for outcome in outcomes)
    print(*late, f"{len(outcomes) - num_wrong} of {counted(len(outcomes), 'round')} ended as the undisturbed run", sep="\n", flush=True)
    if options.page:
        machine = options.machine or f"{os.cpu_count()} processors, load average {os.getloadavg()[2]:.1f} in the last quarter of an hour."
        command = f"python -m tests.faults --rounds {options.rounds} --seed {options.seed}" + " --with-redis" * options.with_redis
        options.page.write_text(page(outcomes, command=command, machine=machine))
    return 1 if num_wrong or late else 0


def outcomes_in(results: Path) -> list[Outcome]:
    """Of the rounds that were played into this folder; none if there is none."""
    path = results / OUTCOMES
    return [outcome_of(line) for line in path.read_text().splitlines()] if path.exists() else []


def not_played(numbers: Iterable[int], seed: int, outcomes: Iterable[Outcome]) -> list[int]:
    """Those of these rounds of a seed of which there is no outcome."""
    played = {outcome.number for outcome in outcomes if outcome.seed == seed}
    return [number for number in numbers if number not in played]


def _play(plans: Sequence[RoundPlan], results: Path, *, with_redis: bool) -> list[str]:
    """Play rounds and keep their outcomes; what was found wrong with them only later."""
    expected: dict[str, dict[str, str]] = {}
    with running_environment(results, with_redis=with_redis) as environment:
        for plan in plans:
            if plan.variant not in expected:
                expected[plan.variant] = undisturbed(environment, plan.variant, results)
            logs = results / f"round-{plan.number}"
            outcome = play(environment, plan, expected[plan.variant], logs)
            with (results / OUTCOMES).open("a") as file:
                file.write(outcome.json + "\n")
            print(outcome.line, *([f"  again: {outcome.command}", f"  logs: {logs}"] if outcome.wrong else []), sep="\n", flush=True)
        return look_later(environment, wait=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--rounds", type=int, default=10, help="how many, from round 0")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", help="only these rounds; none: only the page")
    parser.add_argument(
        "--fault", action="append", help="only this kind of fault; may be repeated", choices=[fault.name for fault in FAULTS]
    )
    parser.add_argument("--variant", action="append", help="only this sweep; may be repeated", choices=list(VARIANT_WEIGHTS))
    parser.add_argument("--with-redis", action="store_true", help="the head keeps its tables in Redis, and is lost, too")
    parser.add_argument("--results", type=Path, help="where outcomes and logs are kept; those of earlier calls count, too")
    parser.add_argument("--resume", action="store_true", help="leave out the rounds of this seed whose outcomes --results has")
    parser.add_argument("--page", type=Path, help="write the table there, such as infra/benchmarks/faults.md")
    parser.add_argument("--machine", help="a sentence for the page: what the rounds ran on, what else ran there")
    options = parser.parse_args()
    if options.resume and options.results is None:
        parser.error("--resume needs --results")
    if not options.with_redis and any(fault_named(name).with_redis for name in options.fault or ()):
        parser.error("this kind of fault needs --with-redis")
    return options


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the hosts are taken away first
    sys.exit(main())
