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
from pathlib import Path

from tests.cluster.hosts import why_not
from tests.faults.kinds import FAULTS
from tests.faults.page import page
from tests.faults.rounds import Outcome, look_later, play, undisturbed
from tests.faults.selection import VARIANT_WEIGHTS, plan_round
from tests.faults.world import world


def main() -> int:
    """Play the rounds that the arguments ask for; 1 if something was wrong."""
    options = _options()
    if reason := why_not():
        print(reason)
        return 2
    results: Path = options.results or Path(tempfile.mkdtemp(prefix="sd-soak-results-", dir="/tmp"))
    chosen = [fault for fault in FAULTS if (fault.name in options.fault if options.fault else fault.awaits is None)]
    numbers = options.only or list(range(options.rounds))
    outcomes: list[Outcome] = []
    expected: dict[str, dict[str, str]] = {}
    print(f"{len(numbers)} rounds, {len(chosen)} kinds of fault, results in {results}", flush=True)
    with world(results) as lived_in:
        for number in numbers:
            plan = plan_round(options.seed, number, chosen, options.variant or tuple(VARIANT_WEIGHTS))
            if plan.variant not in expected:
                expected[plan.variant] = undisturbed(lived_in, plan.variant, results)
            outcome = play(lived_in, plan, expected[plan.variant], results / f"round-{number}")
            outcomes.append(outcome)
            with (results / "outcomes.jsonl").open("a") as file:
                file.write(outcome.json + "\n")
            print(outcome.line, flush=True)
            if outcome.wrong:
                print(f"  again: {outcome.command}\n  logs: {results / f'round-{number}'}", flush=True)
        late = look_later(lived_in, wait=True)
        print(*late, sep="\n", flush=True)
    if options.page:
        load = f"{os.cpu_count()} processors, load average {os.getloadavg()[2]:.1f} in the last quarter of an hour."
        options.page.write_text(page(outcomes, command=f"python -m tests.faults {' '.join(sys.argv[1:])}", machine=load))
    num_wrong = sum(bool(outcome.wrong) for outcome in outcomes)
    print(f"{len(outcomes) - num_wrong} of {len(outcomes)} rounds ended as the undisturbed run", flush=True)
    return 1 if num_wrong or late else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--rounds", type=int, default=10, help="how many, from round 0")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, action="append", help="only this round; may be repeated")
    parser.add_argument(
        "--fault", action="append", help="only this kind of fault; may be repeated", choices=[fault.name for fault in FAULTS]
    )
    parser.add_argument("--variant", action="append", help="only this sweep; may be repeated", choices=list(VARIANT_WEIGHTS))
    parser.add_argument("--results", type=Path, help="where outcomes and logs are kept")
    parser.add_argument("--page", type=Path, help="write the table there, such as infra/benchmarks/faults.md")
    return parser.parse_args()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the hosts are taken away first
    sys.exit(main())
