"""Announce that this host goes away, so that its trainings write a checkpoint now: `python -m rayjobs.leave [--within 60] [--all]`."""

from __future__ import annotations

import argparse

from sentdist.errors import counted
from sentdist.run.connection import connect
from sentdist.run.losses import leave

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Announce that this host will go away. Nothing is stopped; trainings resume elsewhere.")
    parser.add_argument("--within", type=int, choices=range(1, 86_401), metavar="SECONDS", default=60, help="until it goes away")
    parser.add_argument("--all", action="store_true", help="all hosts of the cluster go away")
    asked = parser.parse_args()
    connect()
    leaving = leave(within_s=asked.within, everywhere=asked.all)
    hosts = f"{counted(len(leaving), 'host')} to go within {asked.within} s: {', '.join(leaving)}"
    print(f"{hosts}. Trainings there write their checkpoints now.")
