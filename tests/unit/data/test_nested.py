"""Objects within objects, as exports of tickets have them: their fields are columns by a name with points."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.own.files import own_table
from sentdist.data.own.recognise import OwnFileOptions, recognise
from sentdist.data.own.rows import read_rows
from sentdist.data.sources.separated import FileFormat
from sentdist.data.texts import open_texts
from sentdist.errors import DataError

ROWS = [
    {"id": n, "ticket": {"question": f"how is thing number {n} opened", "by": {"answer": f"with the key {n} of the house"}}, "lang": "de"}
    for n in range(40)
]
COLUMNS = ("ticket.question", "ticket.by.answer")


def _written(folder: Path, suffix: str) -> Path:
    path = folder / f"tickets{suffix}"
    match suffix:
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(ROWS), path)
        case ".json":
            path.write_text(json.dumps(ROWS))
        case _:
            path.write_text("\n".join(map(json.dumps, ROWS)))
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_fields_within_objects_are_columns(suffix: str, tmp_path: Path) -> None:
    """They could not be named at all."""
    path = _written(tmp_path, suffix)
    with pytest.raises(
        DataError, match=r"found columns id, ticket\.question, ticket\.by\.answer, lang; .* --columns ticket\.question,ticket"
    ):
        recognise(path.name, path, OwnFileOptions())
    found = recognise(path.name, path, OwnFileOptions(columns=COLUMNS))
    rows = read_rows(path.name, path, found.file, 0, revision=found.revision)
    assert found.file.columns == COLUMNS and sum(found.sizes) == 40
    pairs = {(row["ticket"]["question"], row["ticket"]["by"]["answer"]) for row in ROWS}  # type: ignore[index]
    assert rows.num_rows == found.sizes[0] and {tuple(row.values()) for row in rows.to_pylist()} <= pairs
    with pytest.raises(DataError, match=r"found 1 column; expected two"):
        recognise(path.name, path, OwnFileOptions(columns=COLUMNS[:1]))
    with pytest.raises(DataError, match=r"ticket\.nothing"):
        recognise(path.name, path, OwnFileOptions(columns=("ticket.question", "ticket.nothing")))


def test_what_names_none_of_them_is_read_as_it_was(tmp_path: Path) -> None:
    path = _written(tmp_path, ".jsonl")
    assert own_table("t", path, FileFormat(), named=("id", None)).column_names == ["id", "ticket", "lang"]


def test_sentences_within_objects_are_encoded(tmp_path: Path) -> None:
    texts = open_texts(str(_written(tmp_path, ".jsonl")), columns=("ticket.by.answer",), id_column="id")
    first = next(iter(texts.batches(2)))
    assert first == {"ticket.by.answer": [ROWS[n]["ticket"]["by"]["answer"] for n in range(2)], "id": ["0", "1"]}  # type: ignore[index]
