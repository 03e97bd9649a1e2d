"""Folders that nobody else can enter: made, found again, and refused where somebody else may have planted them."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from sentdist.errors import ServerError
from sentdist.services import state as folders
from sentdist.services.state import make_secret, private_folder, ray_folder

NOBODY = 65534


def test_a_private_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    for _ in ("made", "found again"):
        assert private_folder(path) == path
        assert path.stat().st_mode & 0o777 == 0o700


def test_a_secret_is_made_once_and_anew_where_a_crash_left_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0o644)
    made = make_secret(tmp_path / "secret")
    assert len(made) == 64 and make_secret(tmp_path / "secret") == made
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "planted", ["symlink", "file", "open to others", "open to a group", "in a folder of others", "in a folder of a group", "somebody's"]
)
def test_what_somebody_else_may_have_planted_is_refused(planted: str, tmp_path: Path) -> None:
    path = tmp_path / "mine"
    reported = {
        "symlink": "a symbolic link", "file": "a file", "open to others": "mode 755", "open to a group": "mode 750",
        "in a folder of others": "others may rename", "in a folder of a group": "others may rename",
        "somebody's": f"one of the user with the number {NOBODY}",
    }[planted]  # fmt: skip
    match planted:
        case "symlink":
            (tmp_path / "theirs").mkdir(mode=0o700)
            path.symlink_to(tmp_path / "theirs")
        case "file":
            path.touch()
        case "open to others":
            path.mkdir()
            path.chmod(0o755)
        case "open to a group":
            path.mkdir()
            path.chmod(0o750)
        case "in a folder of others":
            tmp_path.chmod(0o777)  # without the sticky bit that /tmp has
        case "in a folder of a group":
            tmp_path.chmod(0o770)
        case "somebody's":
            if os.geteuid() != 0:
                pytest.skip("only root can give a folder away")
            path.mkdir(mode=0o700)
            os.chown(path, NOBODY, NOBODY)
    with pytest.raises(ServerError, match=reported):
        private_folder(path)


@pytest.mark.parametrize(("knows", "is_taken"), [("0 0 4294967295", False), ("1000 1000 1", True), ("0 1000 1\n1 100000 65536", True)])
def test_folders_above_may_belong_to_a_root_whom_a_container_does_not_know(
    knows: str, is_taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Apptainer even / and /tmp belong to 65534, and every folder was refused."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    (tmp_path / "uid_map").write_text(knows)
    monkeypatch.setattr(folders, "UIDS", tmp_path / "uid_map")
    (tmp_path / "temp").mkdir()
    os.chown(tmp_path / "temp", NOBODY, NOBODY)
    (tmp_path / "temp").chmod(0o1777)
    with nullcontext() if is_taken else pytest.raises(ServerError, match=f"belongs to the user with the number {NOBODY}"):
        private_folder(tmp_path / "temp" / "mine")
    (tmp_path / "temp" / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "temp" / "theirs", NOBODY, NOBODY)
    with pytest.raises(ServerError, match=f"one of the user with the number {NOBODY}"):
        private_folder(tmp_path / "temp" / "theirs")


def test_rays_folder_lies_in_a_private_one_and_is_short_enough_for_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SENTDIST_TEMP", raising=False)
    folder = ray_folder("4294967295")
    assert len(str(folder)) <= 38
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert folder.parent.stat().st_uid == os.geteuid()
    deep = tmp_path / ("d" * 40)
    deep.mkdir()
    monkeypatch.setenv("SENTDIST_TEMP", str(deep))
    with pytest.raises(ServerError, match="Set SENTDIST_TEMP to a shorter folder"):
        ray_folder("head")
