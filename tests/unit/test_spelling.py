from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.cache import cache_folder
from sentdist.spelling import LONGEST_NAME, did_you_mean, near, near_file

NAMES = ("batch_size", "learning_rate", "length", "max_length")


def test_the_name_that_was_meant_is_spelt_alike_or_is_what_others_call_it() -> None:
    meant = {"bach_size": "batch_size", "learn": "learning_rate", "le": None, "": None, "lenght": "length", "size": "batch_size"}
    assert {name: near(name, NAMES) for name in meant} == meant
    for name, names, expected in [
        ("gpu", ("auto", "cpu", "cuda"), "cuda"),
        ("lr", NAMES, "learning_rate"),
        ("dataset", ("targets", "corpus"), "corpus"),
        ("lr", ("schedule",), None),
        ("weight", ("terms", "weight_decay"), "terms"),
        ("file", ("source", "file"), "file"),
        ("RCL", ("rse", "rcl"), "rcl"),
        ("knid", ("kind", "link"), "kind"),
    ]:
        assert near(name, names) == expected


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


def test_files_are_alike_by_what_stands_before_the_suffix() -> None:
    for name, names, meant in [
        ("gone.csv", ("w.csv", "enc.csv"), None),
        ("faqs.csv", ("faq.tsv", "faq.csv", "other.csv"), "faq.csv"),
        ("faq.csv", ("faq.tsv",), "faq.tsv"),
        ("questions", ("questions.jsonl",), "questions.jsonl"),
        ("rcl_gird.yaml", ("rcl_grid.yaml", "rse.yaml"), "rcl_grid.yaml"),
    ]:
        assert near_file(name, names) == meant
