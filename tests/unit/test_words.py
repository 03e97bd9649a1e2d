"""Texts for people: names that were meant, sizes, tables, messages of bounded length."""

from __future__ import annotations

import csv
import io
import math
import pickle
import re
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub.errors as known
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from sentdist.errors import LONGEST, DataError, brief, counted, did_you_mean, first_line, hub_trouble, near, one_line
from sentdist.files import cache_folder, disk_size, memory_size
from sentdist.text import csv_cell, csv_text, markdown_table, markdown_text
from tests.support.machine_speed import slower_than_reference

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


def test_disks_have_three_digits_and_memory_one_behind_the_point() -> None:
    disks = {0: "0 bytes", 999: "999 bytes", 999_499: "999 kB", 999_600: "1 MB", 125_400_000: "125 MB", 1_254_000_000: "1.25 GB"}
    memory = {0: "0.0 KiB", 2**30 - 1: "1.0 GiB", 209 * 2**20: "209.0 MiB", 15.94 * 2**30: "15.9 GiB", 3 * 2**40: "3.0 TiB"}
    assert {size: disk_size(size) for size in disks} == disks and {size: memory_size(size) for size in memory} == memory


NASTY = st.text(
    alphabet=st.one_of(st.sampled_from("|<>&*_`~[]()!#=+-@\\\"'$;,\t\r\n\0\x0b\u2028\u202e^:/ab1. "), st.characters(codec="utf-8"))
)
GITHUB = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
STARTS_A_FORMULA = re.compile(r"\s*[=+\-@\t\r]")


@example(rows=[["", "-inf"]])
@example(rows=[["", " \r"]])
@given(st.lists(st.lists(NASTY, min_size=2, max_size=2), min_size=1, max_size=4))
def test_no_cell_of_a_csv_file_is_a_formula_and_none_is_lost(rows: list[list[str]]) -> None:
    read = list(csv.reader(io.StringIO(csv_text(rows), newline="")))
    assert [len(row) for row in read] == [2] * len(rows)
    for before, after in zip(chain.from_iterable(rows), chain.from_iterable(read), strict=True):
        assert after in (before, f"'{before}")
        assert not STARTS_A_FORMULA.match(after) or _is_number(after)


def test_what_a_spreadsheet_runs_gets_an_apostrophe_and_all_else_stays_as_it_is() -> None:
    for value in [-1, 1e-9, True, None, "-0.25", "+1.5", "-1e-05", "-inf", "nan", ".5", "", "rcl", "a=b", "φ=−1"]:
        assert csv_cell(value) is value
    for text in ["=1+1", "+a", "-1+1", "@SUM(A1)", "\tx", "\r=x", " =1", "＝1", "-", "\x00=1"]:
        assert csv_cell(text) == f"'{text}"


@given(st.lists(st.lists(NASTY, min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_markdown_table_keeps_its_shape_and_shows_its_texts(rows: list[list[str]]) -> None:
    text = markdown_table(("one", "two", "three"), [list(map(markdown_text, row)) for row in rows])
    assert "<" not in text and len(text.splitlines()) == len(rows) + 2
    tokens = GITHUB.parse(text)
    assert [token.type for token in tokens if token.type.startswith("table")] == ["table_open", "table_close"]
    cells = [token for token in tokens if token.type == "inline"]
    assert [_shown(cell) for cell in cells[3:]] == [_as_line(value) for row in rows for value in row]


def _shown(inline: object) -> str:
    """The text of a cell, if it has nothing but text."""
    children = inline.children  # type: ignore[attr-defined]
    assert {child.type for child in children} <= {"text", "text_special"}, [child.type for child in children]
    return "".join(child.content for child in children)


def _as_line(text: str) -> str:
    return re.sub("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+", " ", text).strip()


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) or text.lstrip("+-") in ("inf", "nan")
    except ValueError:
        return False


def test_a_message_is_one_line_of_bounded_length() -> None:
    for place in ["where", "found", "expected", "remedy"]:
        for value in ["x" * 10**8, "a\nb" * 10**7, "\ud800" * 10**7]:
            slower = slower_than_reference()
            began = time.process_time()
            error = DataError(**({"where": "w", "found": "f", "expected": "e", "remedy": "r"} | {place: value}))  # type: ignore[arg-type]
            assert time.process_time() - began < 2 * slower
            assert len(str(error)) < LONGEST[place] + 30 and len(str(error).splitlines()) == 1
            assert f"({len(value):,} characters)" in str(error)
            assert str(error).encode()  # what cannot be encoded ends a program while it prints


def test_a_cut_message_keeps_its_ends_and_survives_a_pickle() -> None:
    error = DataError(where="w", found=f"begin{'x' * 5000}end", expected="e", remedy="r")
    assert error.found.startswith("begin") and error.found.endswith("end")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.found) == (str(error), error.found)


def test_letters_that_move_the_cursor_are_shown_as_escapes() -> None:
    for letter in ["\x1b", "\n", "\r", "\x00", "\u2028", "\u202e", "\x9b"]:
        shown = one_line(f"a{letter}b", 100)
        assert letter not in shown and shown == f"a{letter.encode('unicode_escape').decode()}b"


def test_values_are_cut_however_they_are_built() -> None:
    deep: list[object] = []
    deep.append(deep)
    wide = [{"key": "x" * 1000}] * 10**6
    slower = slower_than_reference()
    for value in (deep, wide, 10**100_000, b"x" * 10**7, "y" * 10**7, {n: n for n in range(10**5)}):
        began = time.process_time()
        assert len(brief(value)) <= 160
        assert time.process_time() - began < slower
    assert brief("rcl") == "'rcl'" and brief(0.5) == "0.5" and brief([1, 2]) == "[1, 2]"


def test_an_error_without_a_text_is_reported_by_its_name() -> None:
    assert first_line(EOFError()) == "EOFError" and first_line(ValueError("one\ntwo")) == "one"


def test_a_count_agrees_with_its_noun() -> None:
    assert [counted(number, "trial") for number in (0, 1, 2000)] == ["0 trials", "1 trial", "2,000 trials"]
    assert [counted(number, "query", "queries") for number in (1, 2000)] == ["1 query", "2,000 queries"]


def _http(kind: Callable[..., Exception], status: int) -> Exception:
    """As the library makes it of an answer."""
    return kind("reported", response=SimpleNamespace(status_code=status, headers={}, request=None))


def test_an_error_is_an_answer_or_silence() -> None:
    for error, found, has_answered in [
        (_http(known.RevisionNotFoundError, 404), 'no revision "abc" on the hub', True),
        (_http(known.GatedRepoError, 403), "no such repository on the hub, or no right to it (GatedRepoError: reported)", True),
        (
            _http(known.RepositoryNotFoundError, 401),
            "no such repository on the hub, or no right to it (RepositoryNotFoundError: reported)",
            True,
        ),
        (known.HFValidationError("a//b"), "no such repository on the hub, or no right to it (HFValidationError: a//b)", True),
        (_http(known.HfHubHTTPError, 403), "no such repository on the hub, or no right to it (HfHubHTTPError: reported)", True),
        (known.LocalTokenNotFoundError("none"), "no such repository on the hub, or no right to it (LocalTokenNotFoundError: none)", True),
        (_http(known.HfHubHTTPError, 503), "no answer from the hub (HfHubHTTPError: reported)", False),
        (known.OfflineModeIsEnabled("off"), "no answer from the hub (OfflineModeIsEnabled: off)", False),
        (OSError("no route to host\nand more"), "no answer from the hub (OSError: no route to host)", False),
    ]:
        trouble = hub_trouble(error, revision="abc")
        assert (trouble.found, trouble.has_answered) == (found, has_answered) and trouble.remedy.endswith(".")
        not_cached = known.LocalEntryNotFoundError("not in the cache")
        not_cached.__cause__ = error
        assert hub_trouble(not_cached, revision="abc") == trouble
