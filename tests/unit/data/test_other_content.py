"""Files that are something else than they are called: said as what they are, wherever texts are read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.own.recognise import OwnFileOptions, recognise
from sentdist.data.sources.hub import inspect_source
from sentdist.data.texts import open_texts
from sentdist.errors import DataError

POINTER = (
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 1\n"
)
PAGE = '\n<!DOCTYPE html>\n<html lang="en"><head><title>\nSign in &amp; go</title></head>\n<body>a, b</body></html>\n'


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json", "parquet", "txt"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (POINTER, "a pointer of Git LFS to a file that was not fetched; .*`git lfs pull`"),
        (PAGE, "a web page, 'Sign in & go'; .*Fetch the file itself"),
        ("<html>\n<body>x</body></html>", "a web page; "),
        ("<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "an XML document, 'AccessDenied'; "),
        ("/annex/objects/MD5-s1--0cc175b9\n", "a pointer of git-annex"),
        ("PK\x03\x04 and so on", "a spreadsheet or an archive"),
    ],
)
def test_what_is_no_table_is_said_as_what_it_is(tmp_path: Path, suffix: str, content: str, said: str) -> None:
    """It was one column, no JSON object, or no Parquet file."""
    path = tmp_path / f"own.{suffix}"
    path.write_text(content)
    with pytest.raises(DataError, match=said):
        recognise(path.name, path, OwnFileOptions())
    with pytest.raises(DataError, match=said):
        open_texts(str(path))
    if suffix != "txt":
        with pytest.raises(DataError, match=said):
            inspect_source("own", data_root=tmp_path)


def test_a_parquet_file_by_another_name_is_said_as_that(tmp_path: Path) -> None:
    pq.write_table(pa.table({"question": ["how"], "answer": ["so"]}), tmp_path / "own.csv")
    with pytest.raises(DataError, match=r"a Parquet file; expected csv, as its name says\. Call the file own\.parquet"):
        recognise("own.csv", tmp_path / "own.csv", OwnFileOptions())


@pytest.mark.parametrize("first", ["<p>how</p>,so", "html,text", "<htmlish,so", "version https,url"])
def test_texts_with_tags_are_no_page(tmp_path: Path, first: str) -> None:
    (tmp_path / "own.csv").write_text(first + "\n" + "".join(f"one {n},other {n}\n" for n in range(40)))
    assert sum(recognise("own.csv", tmp_path / "own.csv", OwnFileOptions(near=None)).sizes) >= 40
