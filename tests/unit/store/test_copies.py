"""Copies of remote artifacts on this machine, where several processes make and remove them at once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import fs

from sentdist.store.copies import IN_USE_S, copy_of, make_room


def test_what_two_buckets_hold_under_one_key_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "cache"))
    for _ in ("copied", "found again"):
        for data in ("data-1", "data-2"):
            (tmp_path / data).mkdir(exist_ok=True)
            (tmp_path / data / "weights").write_text(data)
            record: Any = SimpleNamespace(key="0" * 16, data=data, files={"weights": 6})
            copy = copy_of(record, filesystem=fs.LocalFileSystem(), path=str(tmp_path / data), shown="s3://bucket")
            assert (copy / "weights").read_text() == data


def test_old_copies_go_first_until_what_is_wanted_fits_and_a_tenth_of_the_disk_stays_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, age_s in {"oldest": 4.0, "older": 3.0, "old": 2.0, "used": 0.5}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_bytes(b"w" * 1000)
        os.utime(tmp_path / name, (1e9 - age_s * IN_USE_S,) * 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(total=10_000, free=1_200))
    assert make_room(tmp_path, 200, now=1e9) == []
    assert make_room(tmp_path, 1_500, now=1e9) == [tmp_path / "oldest", tmp_path / "older"]
    assert make_room(tmp_path, 10_000, now=1e9) == [tmp_path / "old"], "one that was used today stays"
