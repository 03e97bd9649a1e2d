"""What parts a file into columns where texts hold line breaks, as answers to questions do."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sentdist.data.own.file_format import own_table
from sentdist.data.own.shapes import KNOWN_NAMES
from sentdist.data.sources.parting import separators
from sentdist.data.sources.separated import FileFormat, recognised

ROWS = [(f"How do I do {n}?", f"Open page {n}, then wait." + "\nStep: do it, at once." * (n % 5 > 0)) for n in range(60)]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize(
    ("name", "separator"), [("own.csv", ","), ("own.tsv", "\t"), ("own.csv", ";"), ("own.csv", "\t"), ("own.txt", "\t")]
)
def test_line_breaks_within_marks_part_nothing(
    name: str, separator: str, header: bool, quoting: int, line_end: str, tmp_path: Path
) -> None:
    """Most rows have some. A table separated by tabs was refused, or taken for one that the commas of its sentences separate."""
    is_plain = header or quoting == csv.QUOTE_ALL or separator == ","
    rows = (
        ROWS if is_plain else [(question, answer.replace(",", "")) for question, answer in ROWS]
    )  # else a comma in each line, and no sign
    path = tmp_path / name
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator, quoting=quoting, lineterminator=line_end)  # type: ignore[call-overload]
        writer.writerows([("question", "answer")] * header + rows)
    found = recognised(name, path, FileFormat(), sorted(KNOWN_NAMES))
    assert (found.separator, found.has_header) == (separator, header)
    assert [tuple(row.values()) for row in own_table(name, path, found).to_pylist()] == rows


def test_marks_within_cells_between_tabs_are_letters() -> None:
    lines = [f'"Hi" she said {n}\ta 5" screen\n' for n in range(30)]
    assert separators(Path("own.tsv"), [*lines, "one cell alone\n"], ())[0] == "\t"


def test_a_look_that_ends_within_marks_counts_the_rows_before() -> None:
    lines = [f'question {n}\t"first\nsecond"\n' for n in range(30)]
    broken = "".join(lines).splitlines(keepends=True)[:-1]
    assert separators(Path("own.tsv"), broken, ()) == ["\t"]
