"""Sources: what planning learns of a file, and how a wrong one is refused."""

from __future__ import annotations

import csv
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.sources.file_facts import recall
from sentdist.data.sources.pinned import inspect_source, read_source
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


def test_facts_of_a_parquet_file(root: Path) -> None:
    facts = inspect_source("nli/triplets", data_root=root)
    assert facts.num_rows == 3
    assert facts.columns == tuple(TRIPLETS)
    assert facts.splits == ("train", "dev")
    assert facts.revision.startswith("sha256:") and len(facts.revision) == len("sha256:") + 16
    assert inspect_source("nli/triplets", split="train", data_root=root).num_rows == 2


def test_the_revision_follows_the_content_and_not_the_place(root: Path) -> None:
    before = inspect_source("nli/triplets", data_root=root).revision
    copy = root / "nli" / "copy.parquet"
    copy.write_bytes((root / "nli" / "triplets.parquet").read_bytes())
    assert inspect_source("nli/copy", data_root=root).revision == before
    pq.write_table(pa.table(TRIPLETS).slice(1), copy)
    assert inspect_source("nli/copy", data_root=root).revision != before


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".tsv", ".jsonl"])
def test_every_format_reads_the_same_rows(tmp_path: Path, suffix: str) -> None:
    rows = [("train", 'He said "no".', "A, b"), ("dev", "It's 5.", "5")]
    path = tmp_path / f"some{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table(dict(zip(("split", "one", "two"), map(list, zip(*rows, strict=True)), strict=True))), path)
    elif suffix == ".csv":
        path.write_text('split,one,two\ntrain,"He said ""no"".","A, b"\ndev,It\'s 5.,5\n')
    elif suffix == ".tsv":
        path.write_text("split\tone\ttwo\n" + "".join("\t".join(row) + "\n" for row in rows))
    else:
        path.write_text('{"split":"train","one":"He said \\"no\\".","two":"A, b"}\n{"split":"dev","one":"It\'s 5.","two":"5"}\n')
    table = read_source("some", data_root=tmp_path, columns=("one", "two"))
    assert table.to_pylist() == [{"one": one, "two": two} for _, one, two in rows]
    assert set(table.schema.types) == {pa.large_string()}
    assert read_source("some", split="dev", data_root=tmp_path, columns=("two",)).to_pylist() == [{"two": "5"}]
    assert inspect_source(f"some{suffix}", split="dev", data_root=tmp_path).num_rows == 1


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


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_cell_of_a_source_is_the_text_that_it_holds(tmp_path: Path, suffix: str) -> None:
    texts = ["", "NA", "null", "N/A", "nan", "1e3", "2026-11-27"]
    separator = {".csv": ",", ".tsv": "\t"}[suffix]
    (tmp_path / f"some{suffix}").write_text(f"number{separator}text\n" + "".join(f"{n}{separator}{text}\n" for n, text in enumerate(texts)))
    assert read_source("some", data_root=tmp_path)["text"].to_pylist() == texts


def test_categories_are_texts(tmp_path: Path) -> None:
    columns = {name: pa.array(values).dictionary_encode() for name, values in TRIPLETS.items()}
    pq.write_table(pa.table(columns), tmp_path / "some.parquet")
    table = read_source("some", split="train", data_root=tmp_path)
    assert set(table.schema.types) == {pa.large_string()} and table["sent0"].to_pylist() == TRIPLETS["sent0"][:2]
    assert inspect_source("some", split="dev", data_root=tmp_path).num_rows == 1


def test_texts_with_nuls_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"number": [1, 2], "text": ["one", "t\0w\0o\0"]}), tmp_path / "some.parquet")
    (tmp_path / "lines.jsonl").write_text('{"number": 1, "text": "one"}\n{"number": 2, "text": "t\\u0000wo"}\n')
    for name in ("some", "lines"):
        with pytest.raises(DataError, match=r"text: found texts with NUL characters"):
            read_source(name, data_root=tmp_path)


def test_one_column_is_one_column(tmp_path: Path) -> None:
    for text in ("a; b", "a, b", "a | b"):
        (tmp_path / "some.tsv").write_text(f"text\n{text}\n{text}\n")
        assert read_source("some", data_root=tmp_path).to_pylist() == [{"text": text}] * 2


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


def test_a_file_with_the_time_or_size_of_another_may_hold_something_else(root: Path) -> None:
    path, revisions, at = root / "nli" / "restored.csv", set(), time.time() - 3600
    for text, later in (("a,b", 0), ("a,b\nc,d", 0), ("a,b\nd,c", 1)):  # the second as `cp -p` of an older version leaves it
        path.write_text(f"sentence1,sentence2\n{text}\n")
        os.utime(path, (at + later, at + later))
        revisions.add(inspect_source("nli/restored", data_root=root).revision)
    assert len(revisions) == 3


def test_a_memory_that_is_damaged_or_cannot_be_written_is_looked_through(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _made_long_ago(root / "nli" / "triplets.parquet")
    facts = inspect_source("nli/triplets", data_root=root)
    for damage in ("{", '{"file": 1}', "[]"):
        for note in (tmp_path / "cache").rglob("*.json"):
            note.write_text(damage)
        assert inspect_source("nli/triplets", data_root=root) == facts
    (tmp_path / "blocked").write_text("a file where the cache folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "blocked"))
    assert inspect_source("nli/triplets", data_root=root) == facts


def test_remembered_facts_need_no_pyarrow(root: Path) -> None:
    _made_long_ago(root / "nli" / "triplets.parquet")
    inspect_source("nli/triplets", data_root=root)
    script = (
        "import sys; from pathlib import Path; from sentdist.data.sources.pinned import inspect_source\n"
        f"inspect_source('nli/triplets', data_root=Path({str(root)!r})); inspect_source('generated/nli', split='train')\n"
        "print(sorted({'pyarrow', 'datasets', 'torch', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
    for place, said in ((None, "SENTDIST_DATA"), (root / "absent", "no folder")):
        with pytest.raises(DataError, match=said):
            inspect_source("nli/triplets", data_root=place)


def test_two_files_of_one_name(root: Path) -> None:
    (root / "nli" / "triplets.csv").write_text("sent0\nA.\n")
    with pytest.raises(DataError, match="2 files"):
        inspect_source("nli/triplets", data_root=root)
    assert inspect_source("nli/triplets.csv", data_root=root).num_rows == 1


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


def test_wrong_columns_say_found_and_expected(root: Path) -> None:
    for look in (inspect_source, read_source):
        with pytest.raises(DataError, match=r"found columns .*sent0, sent1.*expected columns anchor, sent1.*anchor missing"):
            look("nli/triplets", data_root=root, columns=("anchor", "sent1"))


def test_an_unknown_split_lists_the_known(root: Path) -> None:
    for look in (inspect_source, read_source):
        with pytest.raises(DataError, match=r'split "trian"; expected one of train, dev.*Did you mean "train"'):
            look("nli/triplets", split="trian", data_root=root)
    (root / "plain.csv").write_text("sentence\nA.\n")
    assert (
        read_source("plain", split="train", data_root=root).num_rows == inspect_source("plain", split="train", data_root=root).num_rows == 1
    )
    with pytest.raises(DataError, match="no column `split`"):
        inspect_source("plain", split="test", data_root=root)


@pytest.mark.parametrize(
    ("written", "meant"),
    [('"a ""b"""', 'a "b"'), ('"a"', '"a"'), ('he said "a"', 'he said "a"'), ('"a" and "b"', '"a" and "b"')],
)
def test_fields_that_pandas_has_quoted_in_a_tsv(tmp_path: Path, written: str, meant: str) -> None:
    (tmp_path / "pairs.tsv").write_text(f"one\ttwo\n{written}\tother\n")
    assert read_source("pairs", data_root=tmp_path)["one"].to_pylist() == [meant]


def test_tabs_and_line_breaks_that_pandas_has_quoted_in_a_tsv(tmp_path: Path) -> None:
    rows, path = [("one\ttab", 'said "a"'), ("plain", "two\nlines"), ("last", '"')], tmp_path / "pairs.tsv"
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([("one", "two"), *rows])
    assert [tuple(row.values()) for row in read_source("pairs", data_root=tmp_path).to_pylist()] == rows
    for line in ('"he said\tmore\tother', '"a" and\t"b"\tc', '"a\nb\t"c"'):
        path.write_text(f'one\ttwo\nx\ty\n{line}\n"z\tw\n')
        with pytest.raises(DataError, match="field"):
            read_source("pairs", data_root=tmp_path)
