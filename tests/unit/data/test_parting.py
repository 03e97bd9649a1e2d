"""What parts a file into columns where texts hold line breaks, as answers to questions do."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sentdist.data.own.columns import KNOWN_NAMES
from sentdist.data.own.files import own_table
from sentdist.data.sources.csv_dialect import separators
from sentdist.data.sources.separated import FileFormat, recognised
from sentdist.errors import DataError

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
    path = tmp_path / name
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator, quoting=quoting, lineterminator=line_end)  # type: ignore[call-overload]
        writer.writerows([("question", "answer")] * header + ROWS)
    found = recognised(name, path, FileFormat(), sorted(KNOWN_NAMES))
    assert (found.separator, found.has_header) == (separator, header)
    assert [tuple(row.values()) for row in own_table(name, path, found).to_pylist()] == ROWS


def test_marks_within_cells_between_tabs_are_letters() -> None:
    lines = [f'"Hi" she said {n}\ta 5" screen\n' for n in range(30)]
    assert separators(Path("own.tsv"), [*lines, "one cell alone\n"], ())[0] == "\t"


def test_a_look_that_ends_within_marks_counts_the_rows_before() -> None:
    lines = [f'question {n}\t"first\nsecond"\n' for n in range(30)]
    broken = "".join(lines).splitlines(keepends=True)[:-1]
    assert separators(Path("own.tsv"), broken, ()) == ["\t"]


@pytest.mark.parametrize(("name", "separator"), [("own.csv", ";"), ("own.csv", "\t"), ("own.tsv", "\t"), ("own.txt", "|")])
def test_one_comma_in_each_line_does_not_part_sentences(name: str, separator: str, tmp_path: Path) -> None:
    """Without a header and without marks the commas of the sentences were taken for what parts the columns."""
    (tmp_path / name).write_text("".join(f"Where, please is page {n}?{separator}On floor {n}\n" for n in range(60)))
    assert recognised(name, tmp_path / name, FileFormat(), sorted(KNOWN_NAMES)).separator == separator


def test_one_column_of_sentences_is_not_parted_by_its_commas(tmp_path: Path) -> None:
    """Halves of sentences were trained on as pairs."""
    path = tmp_path / "own.csv"
    path.write_text("".join(f"Well, this is sentence {n}.\n" for n in range(60)))
    with pytest.raises(DataError, match=r"commas with a space behind them, as in one column of sentences, such as 'Well, this is"):
        recognised(path.name, path, FileFormat(), sorted(KNOWN_NAMES))
    assert recognised(path.name, path, FileFormat(separator=","), sorted(KNOWN_NAMES)).separator == ","
    path.write_text("left, right\n" + "".join(f"one {n}, other {n}\n" for n in range(60)))
    assert recognised(path.name, path, FileFormat(), ["left", "right"]).separator == ","
