"""Tasks that are named by the paths of their files, as in a shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.inference.own_files import own_files


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("here/pairs.tsv", "here/below/more.csv", "there/test.tsv", "data/sts/stsb.parquet", "data/pairs.tsv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_without_a_root_paths_are_what_a_shell_means(here: Path) -> None:
    assert own_files(["sts=pairs.tsv"], None) == (("sts=pairs.tsv",), here / "here")
    assert own_files(["sts=./pairs.tsv", "faq=below/more"], None) == (("sts=pairs.tsv", "faq=below/more"), here / "here")
    assert own_files([f"sts={here}/here/pairs.tsv@test"], None) == (("sts=pairs.tsv@test",), here / "here")
    assert own_files([f"pairs={here}/there/test.tsv"], None) == (("pairs=test.tsv",), here / "there")
    assert own_files(["sts=../there/test.tsv", "sts=pairs.tsv"], None) == (("sts=there/test.tsv", "sts=here/pairs.tsv"), here)


def test_a_root_that_was_named_stays_unless_it_has_none_of_the_files(here: Path) -> None:
    data = here / "data"
    for tasks in (["sts=pairs.tsv"], ["stsb", "sts=./below/more.csv"], ["sts=nothing.tsv"], ["stsb"]):
        assert own_files(tasks, data) == (tuple(tasks), data)
    assert own_files(["sts=./below/more.csv"], data) == (("sts=below/more.csv",), here / "here")
    assert own_files([f"sts={here}/there/test.tsv"], data) == (("sts=test.tsv",), here / "there")


@pytest.mark.parametrize("task", ["sts", "stsb", "sts=hub:owner/name@test", "sts=generated/sts", "nonsense=pairs.tsv", "sts="])
def test_what_is_no_file_needs_no_folder(here: Path, task: str) -> None:
    assert own_files([task], None) == ((task,), None)


def test_files_of_a_mirror_come_when_they_are_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sentdist.inference.own_files.address_of", lambda _: "s3://bucket/data")
    assert own_files(["sts=./below/more.csv"], here / "data") == (("sts=./below/more.csv",), here / "data")
