"""What an MLflow server keeps of a sweep, read from its database: it can be read while the server is down."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

IDENTITIES = ("sentdist.sweep", "sentdist.trial", "sentdist.method")  # the tag that says which run it is


def tracking_faults(database: Path, sweep: str, *, num_runs: int, was_rebuilt: bool = False) -> list[str]:
    """What is wrong with the runs of a sweep that is over: missing, left running, made twice, or a point of a curve twice.

    was_rebuilt: a user had stages built again: their final figures (step 0: seconds, speeds) and the best score are then logged again.
    """
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as rows:
        select = "from runs r join experiments e on r.experiment_id = e.experiment_id where e.name = ? and r.lifecycle_stage = 'active'"
        status = dict(rows.execute(f"select r.run_uuid, r.status {select}", (sweep,)).fetchall())
        marks = ",".join("?" * len(status))
        tags = rows.execute(
            f"select key, value from tags where run_uuid in ({marks}) and key in (?, ?, ?)", (*status, *IDENTITIES)
        ).fetchall()
        points = rows.execute(
            f"select run_uuid, key, step, count(*) from metrics where run_uuid in ({marks}) and key not like 'system/%' "
            "and (not ? or (step > 0 and key not like 'best_%')) group by run_uuid, key, step having count(*) > 1",
            (*status, was_rebuilt),
        ).fetchall()
    faults = [f"MLflow: a run is {state}" for state in status.values() if state != "FINISHED"]
    faults += [f"MLflow: {number} runs for {value}" for (_, value), number in Counter(tags).items() if number > 1]
    faults += [f"MLflow: step {step} of {key} stands {number} times" for _, key, step, number in points]
    return faults + ([f"MLflow: {len(status)} runs, not {num_runs}"] if len(status) != num_runs else [])
