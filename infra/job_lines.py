"""Filters what `ray job submit` prints down to the job's own lines, as they come."""

from __future__ import annotations

import re
import sys

# The submission client's own log, Ray's job manager, and a warning that many small actors on few cores always cause.
NOT_OURS = re.compile(
    r"\s(INFO|SUCC) (cli|job_manager)\.py:|^Running entrypoint for job |PYTHON worker processes have been started on node"
)
THE_END = re.compile(r"\sERR cli\.py:")  # from here on the client repeats the end of a failed job's output

for line in sys.stdin:
    if THE_END.search(line):
        break
    if not NOT_OURS.search(line):
        print(line, end="", flush=True)
for _ in sys.stdin:  # or the writer would end by a broken pipe
    pass
