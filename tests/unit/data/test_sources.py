"""Sources: what planning learns of a file, and how a wrong one is refused; generated ones."""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data import generated as corpora
from sentdist.data.retrieval import read_retrieval
from sentdist.data.sources.file_facts import recall
from sentdist.data.sources.files import GENERATED_SOURCES
from sentdist.data.sources.hub import inspect_source, read_source
from sentdist.errors import DataError

TRIPLETS = {
    "split": ["train", "train", "dev"],
    "sent0": ["A man cooks.", "Two dogs run.", "It rains."],
    "sent1": ["A person cooks.", "Animals run.", "The weather is wet."],
    "hard_neg": ["Nobody cooks.", "Two dogs sleep.", "The sun shines."],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data" / "nli").mkdir(parents=True)
    pq.write_table(pa.table(TRIPLETS), tmp_path / "data" / "nli" / "triplets.parquet")
    return tmp_path / "data"


def _made_long_ago(path: Path) -> None:
    os.utime(path, (time.time() - 3600, time.time() - 3600))


@pytest.mark.parametrize(
    ("encoding", "separator", "suffix"),
    [("utf-8", ",", ".csv"), ("utf-16", "\t", ".tsv"), ("cp1252", ";", ".csv"), ("utf-8-sig", "|", ".tsv")],
)
def test_a_source_is_read_however_it_is_written(tmp_path: Path, encoding: str, separator: str, suffix: str) -> None:
    rows = [{"sentence1": f"Ein Bär läuft {n}", "sentence2": f"So, so {n}", "score": str(n)} for n in range(5)]
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    quote = '"' if separator == "," else ""
    content = "".join(separator.join(f"{quote}{cell}{quote}" for cell in line) + "\n" for line in lines)
    (tmp_path / f"some{suffix}").write_bytes(content.encode(encoding))
    assert read_source("some", data_root=tmp_path).to_pylist() == rows
    for _ in range(2):  # looked at, then remembered
        facts = inspect_source("some", data_root=tmp_path)
        assert facts.columns == tuple(rows[0])
        assert (encoding in facts.note) == (encoding != "utf-8")
        assert ("separated by" in facts.note) == (separator != {".csv": ",", ".tsv": "\t"}[suffix])
        _made_long_ago(tmp_path / f"some{suffix}")
        inspect_source("some", data_root=tmp_path)


def test_facts_are_remembered_until_the_file_changes(root: Path) -> None:
    path = root / "nli" / "triplets.parquet"
    inspect_source("nli/triplets", data_root=root)
    assert recall(path) is None  # written a moment ago: it may change again within one tick of the clock
    _made_long_ago(path)
    first = inspect_source("nli/triplets", data_root=root)
    assert recall(path) is not None
    pq.write_table(pa.table(TRIPLETS).slice(1), path)
    assert recall(path) is None
    assert inspect_source("nli/triplets", data_root=root).revision != first.revision


def test_names_of_no_source_are_refused(root: Path) -> None:
    (root / "pairs.xlsx").write_bytes(b"PK")
    (root / "scifact.tgz").write_bytes(b"PK")
    (root / "some.csv").write_text("one,two,one\na,b,c\n")
    for name, said in (
        ("pairs.xlsx", "Save it as CSV"), ("scifact.tgz", "Unpack it"), ("some", "several columns named 'one'"), ("nli/triplet", "Did you mean nli/triplets"),
        ("triplets", "Did you mean nli/triplets"), ("../data/nli/triplets", "below the data root"), ("/etc/passwd", "below the data root"), ("", "below the data root"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=said) as caught:
            inspect_source(name, data_root=root)
        assert pickle.loads(pickle.dumps(caught.value)).remedy == caught.value.remedy
    (root / "nli" / "triplets.csv").write_text("sent0\nA.\n")
    (root / "nul.jsonl").write_text('{"number": 1, "text": "one"}\n{"number": 2, "text": "t\\u0000wo"}\n')
    for name, said in (("nli/triplets", "2 files"), ("nul", "text: found texts with NUL characters")):
        with pytest.raises(DataError, match=said):
            read_source(name, data_root=root)
    assert inspect_source("nli/triplets.csv", data_root=root).num_rows == 1
    for place, said in ((None, "SENTDIST_DATA"), (root / "absent", "no folder")):
        with pytest.raises(DataError, match=said):
            inspect_source("nli/triplets", data_root=place)


def test_files_without_rows_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"sent0": pa.array([], pa.string())}), tmp_path / "nothing.parquet")
    contents = {"none.parquet": b"", "none.csv": b"", "none.jsonl": b"", "header.csv": b"sent0,sent1\n"}
    damaged = {f"bad{suffix}": b"one,two\n1,2,3\n\xff\xfe{" for suffix in (".parquet", ".csv", ".jsonl")}
    for name, content in (contents | damaged).items():
        (tmp_path / name).write_bytes(content)
    for name in (*contents, *damaged, "nothing.parquet"):
        with pytest.raises(
            DataError, match="no rows" if name not in damaged else "cannot be read|3 fields where 2 belong|line 1: found one,two"
        ):
            inspect_source(name, data_root=tmp_path)


@pytest.mark.parametrize(
    ("written", "meant"), [('"a ""b"""', 'a "b"'), ('"a"', '"a"'), ('he said "a"', 'he said "a"'), ('"a" and "b"', '"a" and "b"')]
)
def test_fields_that_pandas_has_quoted_in_a_tsv(tmp_path: Path, written: str, meant: str) -> None:
    (tmp_path / "pairs.tsv").write_text(f"one\ttwo\n{written}\tother\n")
    assert read_source("pairs", data_root=tmp_path)["one"].to_pylist() == [meant]


# Whoever changes what is generated raises corpora.REVISION and writes the new digests here, in one commit.
DIGESTS = {"generated/nli": "d90de154b9cadb8f", "generated/sts": "36eff3d87df0ee6c", "generated/faq": "33d5aaaa749e71ad"}


def _digest(name: str) -> str:
    rows = "\n".join("\t".join(str(cell) for cell in row.values()) for row in corpora.read(name).to_pylist())
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


def test_a_revision_stands_for_one_content() -> None:
    assert (corpora.REVISION, {name: _digest(name) for name in DIGESTS}) == ("helpdesk-1", DIGESTS)
    assert tuple(corpora.GENERATED) == GENERATED_SOURCES


def test_unknown_names_splits_and_columns() -> None:
    for look in (inspect_source, read_source):
        with pytest.raises(DataError, match='Did you mean "generated/nli"'):
            look("generated/nly")
        with pytest.raises(DataError, match="expected one of train, dev, test"):
            look("generated/nli", split="valid")
        with pytest.raises(DataError, match="sentence1 missing"):
            look("generated/nli", columns=("sentence1",))
    with pytest.raises(DataError, match="no split"):
        read_retrieval("generated/faq", split="train")
