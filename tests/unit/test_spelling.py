from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.errors import LONGEST_NAME, did_you_mean, near, near_file, similar_names
from sentdist.files import cache_folder

NAMES = ("batch_size", "learning_rate", "length", "max_length")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bach_size", "batch_size"),
        ("learn", "learning_rate"),
        ("le", None),
        ("qqq", None),
        ("", None),
        ("lenght", "length"),
        ("size", "batch_size"),
    ],
)
def test_the_name_that_was_meant_is_spelt_alike_or_begins_so(name: str, meant: str | None) -> None:
    assert near(name, NAMES) == meant


@pytest.mark.parametrize(
    ("name", "names", "meant"),
    [
        ("gpu", ("auto", "cpu", "cuda"), "cuda"),
        ("lr", NAMES, "learning_rate"),
        ("bs", NAMES, "batch_size"),
        ("grid", ("sweep", "search"), "sweep"),
        ("dataset", ("targets", "corpus"), "corpus"),
        ("gpu", ("cpu", "gpus_per_worker"), "cpu"),
        ("lr", ("schedule",), None),
        ("weight", ("terms", "weight_decay"), "terms"),
        ("file", ("source", "split"), "source"),
        ("file", ("source", "file"), "file"),
    ],
)
def test_what_others_call_it_is_known_where_our_name_stands(name: str, names: tuple[str, ...], meant: str | None) -> None:
    """`device: gpu` was answered by "cpu", which is spelt alike."""
    assert near(name, names) == meant


def test_several_may_be_meant_each_once_the_likeliest_first() -> None:
    assert similar_names("length", NAMES, most=3) == ["length", "max_length"]
    assert similar_names("length", NAMES, most=1) == ["length"]


def test_letters_in_another_order_are_alike_however_few_they_are() -> None:
    assert near("knid", ("kind", "link"), alike=0.99) == "kind"
    assert near("lgo", ("log", "low"), alike=0.99) == "log"


def test_long_names_cost_nothing_and_are_given_back_whole() -> None:
    assert near("x" * 10_000_000, NAMES) is None
    long = "text " * 1_000
    assert near(long[:LONGEST_NAME], [long]) == long


def test_a_question_or_what_else_to_do() -> None:
    assert did_you_mean("bach_size", NAMES, "Choose one.") == 'Did you mean "batch_size"?'
    assert did_you_mean("qqq", NAMES, "Choose one.") == "Choose one."
    assert did_you_mean("max_lenth", NAMES, alike=0.99) == ""


def test_everything_that_may_be_forgotten_lies_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SENTDIST_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert cache_folder("sides") == tmp_path / "user" / "sentdist" / "sides"
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "large"))
    assert cache_folder("sides") == tmp_path / "large" / "sides"
    monkeypatch.delenv("SENTDIST_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder("sides") == Path.home() / ".cache" / "sentdist" / "sides"


@pytest.mark.parametrize(
    ("name", "names", "meant"),
    [
        ("gone.csv", ("w.csv", "enc.csv"), None),
        ("faqs.csv", ("faq.tsv", "faq.csv", "other.csv"), "faq.csv"),
        ("faq.csv", ("faq.tsv",), "faq.tsv"),
        ("questions", ("questions.jsonl",), "questions.jsonl"),
        ("rcl_gird.yaml", ("rcl_grid.yaml", "rse.yaml"), "rcl_grid.yaml"),
    ],
)
def test_files_are_alike_by_what_stands_before_the_suffix(name: str, names: tuple[str, ...], meant: str | None) -> None:
    assert near_file(name, names) == meant


def test_large_letters_are_small_ones() -> None:
    assert near("RCL", ["rse", "rcl"]) == "rcl" and near("question", ["Frage", "Question"]) == "Question"
    assert near("text", ["Text", "text"]) in ("Text", "text") and similar_names("LR", ["learning_rate"], most=1) == ["learning_rate"]
