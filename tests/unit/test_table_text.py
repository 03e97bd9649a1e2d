"""Tables keep their shape and their texts whatever a title holds: no formula in CSV, no markup in Markdown."""

from __future__ import annotations

import csv
import io
import math
import re
from itertools import chain

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from sentdist.text import csv_cell, csv_text, markdown_link, markdown_table, markdown_text

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


@pytest.mark.parametrize(
    "value", [-1, -0.5, 3, 1e-9, True, None, "-0.25", "+1.5", "-1e-05", "1", "-inf", "nan", ".5", "", "rcl", "a=b", "φ=−1"]
)
def test_numbers_and_plain_texts_stay_as_they_are(value: object) -> None:
    assert csv_cell(value) is value


@pytest.mark.parametrize(
    "value",
    ["=1+1", '=HYPERLINK("x")', "+a", "-a", "-1+1", "@SUM(A1)", "\tx", "\r=x", "\n", " =1", "＝1", "-", "--1", "\x00=1"],
)
def test_what_a_spreadsheet_runs_gets_an_apostrophe(value: str) -> None:
    assert csv_cell(value) == f"'{value}"


@given(st.lists(st.lists(NASTY, min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_markdown_table_keeps_its_shape_and_shows_its_texts(rows: list[list[str]]) -> None:
    text = markdown_table(("one", "two", "three"), [list(map(markdown_text, row)) for row in rows])
    assert "<" not in text and len(text.splitlines()) == len(rows) + 2
    tokens = GITHUB.parse(text)
    assert [token.type for token in tokens if token.type.startswith("table")] == ["table_open", "table_close"]
    cells = [token for token in tokens if token.type == "inline"]
    assert [_shown(cell) for cell in cells[3:]] == [_as_line(value) for row in rows for value in row]


@given(NASTY)
def test_a_text_is_shown_as_it_is_in_a_paragraph(text: str) -> None:
    tokens = GITHUB.parse(markdown_text(text))
    assert [token.type for token in tokens] in ([], ["paragraph_open", "inline", "paragraph_close"])
    assert "".join(map(_shown, filter(lambda token: token.type == "inline", tokens))) == _as_line(text)


@given(NASTY)
def test_a_link_shows_its_text_and_leads_where_it_says(text: str) -> None:
    (inline,) = [token for token in GITHUB.parse(markdown_link(text, "https://a.b/c")) if token.type == "inline"]
    opening, *children, closing = inline.children or []
    assert (opening.type, closing.type, opening.attrs["href"]) == ("link_open", "link_close", "https://a.b/c")
    assert "".join(child.content for child in children) == _as_line(text)


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
