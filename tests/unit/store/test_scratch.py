"""Scratch folders of killed processes go; those of living ones and of other machines stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.store.local_storage import remove_left, scratch_folder
from sentdist.store.store import STAGING, ArtifactStore

KILLED = """
import sys
from pathlib import Path
from sentdist.store.local_storage import scratch_folder
with scratch_folder(Path(sys.argv[1]), "tune") as folder:
    (folder / "file").write_text("left")
    print(folder, flush=True)
    sys.stdin.read()  # until it is killed, or the test fails
"""


def _start(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_goes_with_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "somebody elses").mkdir()
    killed, left = _start(tmp_path)
    living, kept = _start(tmp_path)
    with killed, living:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        elsewhere = tmp_path / kept.name.replace("~", "~other-host-", 1).replace(f"~{living.pid}~", f"~{killed.pid}~")
        elsewhere.mkdir()
        assert left.exists() and kept.exists()
        with scratch_folder(tmp_path, "tune") as mine:
            assert not left.exists()
            assert {path.name for path in tmp_path.iterdir()} == {"somebody elses", kept.name, elsewhere.name, mine.name}
        assert not mine.exists()
        living.send_signal(signal.SIGKILL)
        living.wait()
    assert remove_left(tmp_path) == [kept]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of somebody else")
def test_a_folder_of_another_user_and_a_link_are_left_alone(tmp_path: Path) -> None:
    with scratch_folder(tmp_path, "tune") as mine:
        name = mine.name
    dead = name.replace(f"~{os.getpid()}~", "~4194303~")
    (tmp_path / dead).mkdir()
    os.chown(tmp_path / dead, 65534, 65534)
    (tmp_path / f"{dead[:-8]}00000000").symlink_to(tmp_path)
    assert remove_left(tmp_path) == []


def test_a_writer_that_was_killed_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    (tmp_path / STAGING).mkdir()
    killed, left = _start(tmp_path / STAGING)
    with killed:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    with store.staged() as folder:
        (folder / "data.txt").write_text("data")
        store.commit(RowsCorpus(source="s", source_revision="r"), folder, seconds=0.0, runtime={}, environment={}, results={})
    assert not left.exists()
    assert list((tmp_path / STAGING).iterdir()) == []
