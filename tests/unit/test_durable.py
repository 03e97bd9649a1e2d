"""Files are whole or absent, by one function for all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sentdist.durable import whole_file


def test_a_file_is_the_old_one_until_the_new_one_is_whole(tmp_path: Path) -> None:
    for synced in [False, True]:
        path = tmp_path / "notes.json"
        path.write_text("old")
        with whole_file(path, synced=synced) as part, whole_file(path, synced=synced) as other:
            other.write_text("of another writer")
            part.write_text("new")
            assert path.read_text() == "old"
        assert path.read_text() == "new" and os.listdir(tmp_path) == ["notes.json"]


def test_a_file_that_was_not_finished_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "notes.json") as part:
        part.write_text("half")
        raise KeyboardInterrupt
    assert not os.listdir(tmp_path)


def test_a_synced_file_waits_for_the_disk_and_another_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).suffix))
    with whole_file(tmp_path / "notes.json") as part:
        part.write_text("{}")
    assert synced == []
    with whole_file(tmp_path / "notes.json", synced=True) as part:
        part.write_text("{}")
    assert synced == [".part", ""], "the file under its first name, then the name"
