"""Tasks that are named by the paths of their files, as in a shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.errors import DataError, RecipeError
from sentdist.inference.planned_scores import own_files


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("here/pairs.tsv", "here/below/more.csv", "there/test.tsv", "data/pairs.tsv"):
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


def test_a_root_that_was_named_stays_where_it_has_the_file(here: Path) -> None:
    for tasks in (["sts=pairs.tsv"], ["stsb", "sts=pairs.tsv"], ["sts=pairs"]):
        assert own_files(tasks, here / "data") == (tuple(tasks), here / "data")


def test_a_path_that_the_root_lacks_is_what_a_shell_means(here: Path) -> None:
    assert own_files(["sts=./below/more.csv"], here / "data") == (("sts=below/more.csv",), here / "here")
    assert own_files([f"sts={here}/there/test.tsv@dev"], here / "data") == (("sts=test.tsv@dev",), here / "there")
    beside = ["scenes-sts", "own=faq.csv", "pairs=hub:owner/name#1@test"]
    assert own_files(["sts=below/more.csv", *beside], here / "data") == (("sts=below/more.csv", *beside), here / "here")


def test_queries_and_documents_that_the_root_lacks_are_found_here_too(here: Path) -> None:
    """In a folder of BEIR's shape, or as three files of one name; and a table without its suffix."""
    for name in ("beir/corpus.jsonl", "beir/queries.jsonl", "beir/qrels/test.tsv", "faq_docs.csv", "faq_queries.csv", "faq_qrels.txt"):
        (here / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "here" / name).touch()
    for task in ("retrieval=beir", "retrieval=beir@test", "retrieval=faq", "sts=below/more"):
        assert own_files([task], here / "data") == ((task,), here / "here")
    assert own_files(["retrieval=beir/"], here / "data") == (("retrieval=beir",), here / "here")
    (here / "here/beir/queries.jsonl").unlink()
    assert own_files(["retrieval=beir"], here / "data")[1] == here / "here", "what is missing there is reported by who reads it"


@pytest.mark.parametrize(
    ("task", "meant"), [("sts=pears.tsv", "pairs.tsv"), ("sts=below/moor.csv", "below/more.csv"), ("sts=nowhere/x.csv", "List the folder")]
)
def test_what_lies_nowhere_is_reported_with_both_places(here: Path, task: str, meant: str) -> None:
    with pytest.raises(DataError, match=rf"no such file under {here / 'data'} and none in {here / 'here'}.*{meant}"):
        own_files([task], here / "data")


@pytest.mark.parametrize("other", ["stsb", "sts", "sts=pairs.tsv"])
def test_a_path_beside_tasks_below_the_root_is_refused(here: Path, other: str) -> None:
    with pytest.raises(RecipeError, match=rf"not below the data root .*, beside {other}, which is.*a command of its own"):
        own_files([other, "sts=below/more.csv"], here / "data")


@pytest.mark.parametrize("task", ["sts", "stsb", "sts=hub:owner/name@test", "sts=generated/sts", "nonsense=pairs.tsv", "sts="])
def test_what_is_no_file_needs_no_folder(here: Path, task: str) -> None:
    assert own_files([task], None) == ((task,), None)
