"""Filters what `ray job submit` prints down to the job's own lines, as they come; exit code 1 if the job failed or was stopped."""

from __future__ import annotations

import re
import sys

# The submission client's own log, Ray's job manager, and a warning that many small actors on few cores always cause.
NOT_OURS = re.compile(
    r"\s(INFO|SUCC) (cli|job_manager)\.py:|^Running entrypoint for job |PYTHON worker processes have been started on node"
)
# From an error on, the client repeats the end of the output. It ends with 0 when somebody stopped the job, so its warning is looked for.
ENDED_BADLY = re.compile(r"\s(ERR|WARN) cli\.py:")
STOPPED = re.compile(r"Job '(\S+)' was stopped")

failed = False
for line in sys.stdin:
    if ENDED_BADLY.search(line) and not failed:
        failed = True
        if stopped := STOPPED.search(line):
            print(f"{stopped[1]} was stopped.", flush=True)
    if not failed and not NOT_OURS.search(line):
        print(line, end="", flush=True)
sys.exit(failed)
