"""What is left of Ray's own messages on the console."""

from __future__ import annotations

import pytest

from sentdist.errors import one_line
from sentdist.execution.cluster.connection import console_line

RAYLET = """Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the user or system OOM killer. Last 20 lines \
of the Raylet logs:
    [2026-10-01 04:21:00,123 I 77 77] (raylet) main.cc:318: Setting cluster ID to: 65b6
    [2026-10-01 04:21:00,129 I 77 77] (raylet) node_manager.cc:235: Initializing NodeManager
"""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (RAYLET, None),
        ("The node with node id: 3f and address: 10.0.0.2 has been marked dead because the detector has missed too many heartbeats", None),
        ("A worker died or was killed while executing a task by an unexpected system error. Lease ID: 05", None),
        ("Local disk /tmp is over 95% full.\nFree: 3 GB\n", "Ray: Local disk /tmp is over 95% full."),
        ("x" * 999, "Ray: " + one_line("x" * 999, 240)),
        ("8 PYTHON worker processes have been started on node: b8b9 with address: 127.0.0.1, which is 4x the maximum expected", None),
        ("\n \n", None),
    ],
)
def test_a_message_is_a_line_or_nothing(message: str, line: str | None) -> None:
    assert console_line(message) == line
