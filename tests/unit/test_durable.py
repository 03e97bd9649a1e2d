"""Files are whole or absent, by one function for all."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentdist.files import whole_file

ROOT = Path(__file__).parents[2]

# Who else renames, and what: no file that it has just written.
RENAMES = {
    "files.py": "the one function for files, and a folder that another writer may have published first",
    "store/local_storage.py": "folders from place to place, and the files of a rank into the folder of all ranks, synced before",
    "store/copies.py": "a folder, which another process may have copied first",
    "inference/export.py": "a folder that a user named",
    "tracking/registry.py": "a folder inside one that is not published yet",
}


def _renames(path: Path) -> Iterator[int]:
    """Lines with os.rename, os.replace, shutil.move or a Path's; a string's `replace` takes two texts, a date's only keywords."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            moves = (of, node.func.attr) in {("os", "rename"), ("os", "replace"), ("shutil", "move")}
            if moves or (node.func.attr in ("rename", "replace") and len(node.args) == 1):
                yield node.lineno


def test_nobody_else_writes_beside_and_renames() -> None:
    found = {str(path.relative_to(ROOT / "sentdist")): list(_renames(path)) for path in (ROOT / "sentdist").rglob("*.py")}
    assert {name for name, lines in found.items() if lines} == set(RENAMES)


@pytest.mark.parametrize("synced", [False, True])
def test_a_file_is_the_old_one_until_the_new_one_is_whole(tmp_path: Path, synced: bool) -> None:
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
