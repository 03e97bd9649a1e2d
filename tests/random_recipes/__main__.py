"""Many recipes at random as a command: `python -m tests.random_recipes --rounds 500`. A failed one is played again by its number."""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path

from tests.random_recipes.draw import world
from tests.random_recipes.play import play


def main() -> int:
    """Play them; 1 if one went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first; its recipe follows from the number alone")
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        data, encoders = world(Path(folder))
        for number in range(options.first, options.first + options.rounds):
            with tempfile.TemporaryDirectory() as store:
                try:
                    outcomes[play(number, data, encoders, Path(store))] += 1
                except Exception:
                    outcomes["WRONG"] += 1
                    print(f"recipe {number}:", traceback.format_exc(), sep="\n", flush=True)
    print(*(f"{times:5}  {outcome}" for outcome, times in outcomes.most_common()), sep="\n")
    return 1 if outcomes["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
