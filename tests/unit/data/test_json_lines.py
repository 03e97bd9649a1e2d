"""JSON lines as people write them."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

from sentdist.data.sources.files import read_lines, read_objects

LINES = """{"title": "a", "id": "2020-01-01", "with": ["2020-01-01", "2021-06-30 10:00:00"], "about": {"day": "2020-01-01", "views": 3}}
{"title": "b", "id": "2020-01-02", "with": [], "about": {"day": "2020-01-02", "views": 4}}
"""


def test_texts_that_look_like_dates_stay_texts(tmp_path: Path) -> None:
    """An id "2020-01-01" became a time, which no judgement names."""
    plain, packed = tmp_path / "rows.jsonl", tmp_path / "rows.jsonl.gz"
    plain.write_text(LINES)
    packed.write_bytes(gzip.compress(LINES.encode()))
    table = read_lines(plain)
    assert table.column_names == ["title", "id", "with", "about"]
    assert table.to_pylist()[0] == {
        "title": "a", "id": "2020-01-01", "with": ["2020-01-01", "2021-06-30 10:00:00"], "about": {"day": "2020-01-01", "views": 3},
    }  # fmt: skip
    assert read_lines(packed) == table == read_lines(io.BytesIO(LINES.encode()))


def test_a_key_that_comes_later_is_a_column_too(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('[{"b": "x"}, {"a": "y", "b": null}, {"c": 1}]')
    assert read_objects(tmp_path / "rows.json").to_pydict() == {"b": ["x", None, None], "a": [None, "y", None], "c": [None, None, 1]}
