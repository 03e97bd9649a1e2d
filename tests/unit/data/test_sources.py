"""Sources: what planning learns of a file, and how a wrong one is refused."""

from __future__ import annotations

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
from sentdist.data.sources.hub import inspect_source, read_source
from sentdist.errors import DataError

TRIPLETS = {
    "split": ["train", "train", "dev"],
    "sent0": ["A man cooks.", "Two dogs run.", "It rains."],
    "sent1": ["A person cooks.", "Animals run.", "The weather is wet."],
    "hard_neg": ["Nobody cooks.", "Two dogs sleep.", "The sun shines."],
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


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


@pytest.mark.parametrize(("suffix", "separator"), [(".csv", ","), (".tsv", "\t")])
def test_a_table_that_windows_wrote_in_utf_16_is_read(tmp_path: Path, suffix: str, separator: str) -> None:
    (tmp_path / f"some{suffix}").write_text(f"one{separator}two\nEin Bär läuft.{separator}5\n", encoding="utf-16")
    assert read_source("some", data_root=tmp_path, columns=("one", "two")).to_pylist() == [{"one": "Ein Bär läuft.", "two": "5"}]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
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


@pytest.mark.parametrize("text", ["a; b", "a, b", "a | b"])
def test_one_column_is_one_column(tmp_path: Path, text: str) -> None:
    (tmp_path / "some.tsv").write_text(f"text\n{text}\n{text}\n")
    assert read_source("some", data_root=tmp_path).to_pylist() == [{"text": text}] * 2


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("one,two,one\na,b,c\n")
    with pytest.raises(DataError, match="several columns named 'one'"):
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


def test_a_file_of_the_same_size_may_hold_something_else(root: Path) -> None:
    path, revisions = root / "nli" / "swapped.csv", set()
    for place, text in enumerate(("sentence1,sentence2\na,b\n", "sentence1,sentence2\nb,a\n")):
        path.write_text(text)
        os.utime(path, (time.time() - 3600 + place,) * 2)
        revisions.add(inspect_source("nli/swapped", data_root=root).revision)
    assert len(revisions) == 2


def test_a_file_with_the_time_of_another_may_hold_something_else(root: Path) -> None:
    path, revisions, at = root / "nli" / "restored.csv", set(), time.time() - 3600
    for text in ("sentence1,sentence2\na,b\n", "sentence1,sentence2\na,b\nc,d\n"):  # as `cp -p` of an older version leaves it
        path.write_text(text)
        os.utime(path, (at, at))
        revisions.add(inspect_source("nli/restored", data_root=root).revision)
    assert len(revisions) == 2


@pytest.mark.parametrize("damage", ["{", '{"file": 1}', "[]"])
def test_a_damaged_memory_is_looked_through(root: Path, tmp_path: Path, damage: str) -> None:
    _made_long_ago(root / "nli" / "triplets.parquet")
    facts = inspect_source("nli/triplets", data_root=root)
    for note in (tmp_path / "cache").rglob("*.json"):
        note.write_text(damage)
    assert inspect_source("nli/triplets", data_root=root) == facts


def test_a_cache_that_cannot_be_written_is_no_failure(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the cache folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    _made_long_ago(root / "nli" / "triplets.parquet")
    assert inspect_source("nli/triplets", data_root=root).num_rows == 3


def test_remembered_facts_need_no_pyarrow(root: Path) -> None:
    """Planning takes less than a second in all; pyarrow alone takes 0.2 s to import."""
    _made_long_ago(root / "nli" / "triplets.parquet")
    inspect_source("nli/triplets", data_root=root)
    script = (
        "import sys; from pathlib import Path; from sentdist.data.sources.hub import inspect_source\n"
        f"inspect_source('nli/triplets', data_root=Path({str(root)!r})); inspect_source('generated/nli', split='train')\n"
        "print(sorted({'pyarrow', 'datasets', 'torch', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_file_of_another_kind_is_said_to_be_there(root: Path) -> None:
    (root / "pairs.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"pairs\.xlsx: found suffix \.xlsx; expected one of \.parquet, .* Save it as CSV"):
        inspect_source("pairs.xlsx", data_root=root)
    (root / "scifact.tgz").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"found suffix \.tgz; .* Unpack it, and name what is inside"):
        inspect_source("scifact.tgz", data_root=root)


def test_a_missing_file_names_its_neighbours(root: Path) -> None:
    with pytest.raises(DataError, match="Did you mean nli/triplets") as caught:
        inspect_source("nli/triplet", data_root=root)
    assert str(root) in caught.value.found
    assert pickle.loads(pickle.dumps(caught.value)).remedy == caught.value.remedy
    with pytest.raises(DataError, match="Did you mean nli/triplets"):
        inspect_source("triplets", data_root=root)


def test_no_data_root(root: Path) -> None:
    with pytest.raises(DataError, match="SENTDIST_DATA"):
        inspect_source("nli/triplets", data_root=None)
    with pytest.raises(DataError, match="no folder"):
        inspect_source("nli/triplets", data_root=root / "absent")


@pytest.mark.parametrize("name", ["../data/nli/triplets", "/etc/passwd", ""])
def test_a_name_stays_below_the_root(root: Path, name: str) -> None:
    with pytest.raises(DataError, match="below the data root"):
        inspect_source(name, data_root=root)


def test_two_files_of_one_name(root: Path) -> None:
    (root / "nli" / "triplets.csv").write_text("sent0\nA.\n")
    with pytest.raises(DataError, match="2 files"):
        inspect_source("nli/triplets", data_root=root)
    assert inspect_source("nli/triplets.csv", data_root=root).num_rows == 1


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".tsv", ".jsonl"])
def test_an_empty_file(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"none{suffix}").write_bytes(b"")
    with pytest.raises(DataError, match="no rows"):
        inspect_source("none", data_root=tmp_path)
    with pytest.raises(DataError, match="no rows"):
        read_source("none", data_root=tmp_path)


def test_files_without_rows(tmp_path: Path) -> None:
    (tmp_path / "header.csv").write_text("sent0,sent1\n")
    pq.write_table(pa.table({"sent0": pa.array([], pa.string())}), tmp_path / "nothing.parquet")
    for name in ("header", "nothing"):
        with pytest.raises(DataError, match="no rows"):
            inspect_source(name, data_root=tmp_path)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_a_damaged_file(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"bad{suffix}").write_bytes(b"one,two\n1,2,3\n\xff\xfe{")
    with pytest.raises(DataError, match=r"cannot be read|a row of 3 fields where 2 belong|line 1: found one,two; expected a JSON object"):
        inspect_source("bad", data_root=tmp_path)


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
