"""A folder of the parts of one table, as Spark, `datasets` and pandas write it: read as one, or refused with the reason."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.own.files import no_such_file
from sentdist.data.own.recognise import OwnFileOptions, RecognisedFile, recognise
from sentdist.data.own.rows import read_rows
from sentdist.data.own.split import DEV, TEST, TRAIN
from sentdist.errors import DataError
from sentdist.plan.corpora.own import own_section
from sentdist.plan.specs import OwnFileSection
from sentdist.stages.context import place_of
from sentdist.stages.planning.resolve import FileResolver

Rows = list[dict[str, object]]
NEAR = OwnFileOptions(near=None)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def some_rows(first: int, number: int = 20) -> Rows:
    return [{"question": f"how is {n}", "answer": f"it is so {n}"} for n in range(first, first + number)]


def write(path: Path, rows: Rows) -> None:
    path.parent.mkdir(exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode()))
    elif path.suffix == ".jsonl":
        path.write_text(lines)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(",".join(map(str, row)) + "\n" for row in [rows[0].keys(), *(row.values() for row in rows)]))


def of_side(folder: Path, found: RecognisedFile, side: int) -> list[str]:
    rows = read_rows(folder.name, folder, found.file, side, revision=found.revision).to_pylist()
    return [row.get("sent0") or row["sentence1"] for row in rows]


@pytest.mark.parametrize("suffix", [".parquet", ".snappy.parquet", ".csv", ".jsonl", ".json", ".jsonl.gz"])
def test_the_parts_in_a_folder_are_one_table(tmp_path: Path, suffix: str) -> None:
    """A folder was to be put into one file."""
    folder = tmp_path / "faq"
    for number in (2, 0, 1):
        write(folder / f"part-0000{number}{suffix}", some_rows(20 * number))
    for name in ("_SUCCESS", ".part-00000.crc", "_metadata"):
        (folder / name).write_bytes(b"\x00")
    found = recognise("faq", folder, NEAR)
    assert found.file.shape == "faq" and sum(found.sizes) == 60
    assert f"3 files as one table, part-00000{suffix} to part-00002{suffix}" in found.notes[0] and "not read" not in found.notes[0]
    together = [text for side in (TRAIN, DEV, TEST) for text in of_side(folder, found, side)]
    assert sorted(together) == sorted(f"how is {n}" for n in range(60))
    assert of_side(folder, found, TRAIN) == sorted(of_side(folder, found, TRAIN), key=lambda text: int(text.split()[-1]))


def test_the_content_of_parts_and_not_the_folder_makes_the_revision(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name / "a.jsonl", some_rows(0))
        write(tmp_path / name / "b.jsonl", some_rows(20))
    one, two = (recognise("own", tmp_path / name, NEAR) for name in ("one", "two"))
    assert (one.revision, one.file) == (two.revision, two.file)
    write(tmp_path / "two/b.jsonl", some_rows(21))
    assert recognise("own", tmp_path / "two", NEAR).revision != one.revision
    with pytest.raises(DataError, match="another content than when the run was planned"):
        read_rows("own", tmp_path / "two", two.file, TRAIN, revision=two.revision)


def test_splits_in_the_names_of_files_are_splits(tmp_path: Path) -> None:
    """Rows of a test file would have trained."""
    folder = tmp_path / "own"
    for name, first in (("train-00000-of-00002", 0), ("train-00001-of-00002", 20), ("validation-00000-of-00001", 40), ("test_v2", 60)):
        write(folder / f"{name}.parquet", some_rows(first))
    found = recognise("own", folder, NEAR)
    assert found.sizes == (40, 20, 20) and "splits by the names of the files" in found.notes[0]
    assert of_side(folder, found, TEST) == [f"how is {n}" for n in range(60, 80)]
    before = found.revision
    (folder / "test_v2.parquet").rename(folder / "trainer.parquet")
    with pytest.raises(DataError, match=r"which is a split by its name, beside trainer\.parquet"):
        recognise("own", folder, NEAR)
    (folder / "trainer.parquet").rename(folder / "train-3.parquet")
    assert recognise("own", folder, NEAR).revision != before


def test_the_place_of_a_row_is_reported_with_its_file(tmp_path: Path) -> None:
    for number in range(3):
        rows: Rows = [{"sentence1": f"a {n}", "sentence2": f"b {n}", "score": str(n % 5)} for n in range(20 * number, 20 * number + 20)]
        rows[7]["score"] = "four" if number == 1 else "4"
        write(tmp_path / "sts" / f"part-{number}.csv", rows)
    with pytest.raises(DataError, match=r"'four' in row 8 of part-1\.csv"):
        recognise("sts", tmp_path / "sts", NEAR)


def test_parts_without_rows_and_keys_that_some_objects_lack_are_no_mistake(tmp_path: Path) -> None:
    write(tmp_path / "own/part-1.jsonl", some_rows(0))
    write(tmp_path / "own/part-2.jsonl", [{**row, "note": "x"} for row in some_rows(20)])
    (tmp_path / "own/part-0.jsonl").touch()
    assert sum(recognise("own", tmp_path / "own", NEAR).sizes) == 40
    write(tmp_path / "p/part-1.parquet", some_rows(0, 40))
    pq.write_table(pq.read_table(tmp_path / "p/part-1.parquet").slice(0, 0), tmp_path / "p/part-0.parquet")
    assert sum(recognise("p", tmp_path / "p", NEAR).sizes) == 40
    write(tmp_path / "p/readme.txt", some_rows(0))
    (tmp_path / "p/old").mkdir()
    assert "old/, readme.txt beside not read" in recognise("p", tmp_path / "p", NEAR).notes[0]


def other_columns(folder: Path) -> None:
    write(folder / "b.csv", [{"question": "x", "reply": "y"}])


def other_kind(folder: Path) -> None:
    write(folder / "b.jsonl", some_rows(20))


def other_types(folder: Path) -> None:
    (folder / "a.csv").unlink()
    write(folder / "a.parquet", some_rows(20))
    write(folder / "b.parquet", [{"question": 1, "answer": "y"}])


def no_header(folder: Path) -> None:
    (folder / "b.csv").write_text("how is it,it is so\nhow is that,so\n")


def other_encodings(folder: Path) -> None:
    (folder / "b.csv").write_bytes("question,answer\nGröße,so\n".encode())
    (folder / "c.csv").write_bytes("question,answer\nGröße,so\n".encode("cp1252"))


def nothing(folder: Path) -> None:
    (folder / "a.csv").unlink()
    write(folder / "data/a.csv", some_rows(0))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (other_columns, r"own/b\.csv: found no column answer but a column reply; expected columns question, answer, as in a\.csv"),
        (other_kind, r"files of several kinds, such as b\.jsonl, a\.csv"),
        (other_types, r"own/b\.parquet, question: found values of type int64; expected string, as in a\.parquet"),
        (no_header, r"own/b\.csv: found no column question, answer but a column how is it"),
        (other_encodings, r"c\.csv in cp1252, b\.csv in utf-8; expected|b\.csv in utf-8, c\.csv in cp1252; expected"),
        (nothing, r"a folder without a table.*Name a folder in it: .*own/data"),
    ],
)
def test_parts_that_are_no_parts_of_one_table_are_reported(tmp_path: Path, spoil: Callable[[Path], None], said: str) -> None:
    write(tmp_path / "own/a.csv", some_rows(0))
    spoil(tmp_path / "own")
    with pytest.raises(DataError, match=said):
        recognise("own", tmp_path / "own", NEAR)


def test_parts_in_ascii_take_the_encoding_of_the_others(tmp_path: Path) -> None:
    write(tmp_path / "own/a.csv", some_rows(0))
    (tmp_path / "own/b.csv").write_bytes(("question,answer\n" + "".join(f"Wie {n},Größe {n}\n" for n in range(20))).encode("cp1252"))
    assert recognise("own", tmp_path / "own", NEAR).file.encoding == "cp1252"


@pytest.mark.parametrize("is_below", [False, True])
def test_a_recipe_and_tune_name_the_folder(tmp_path: Path, is_below: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "root"
    root.mkdir()
    for number in range(2):
        write((root if is_below else tmp_path) / f"faq/part-{number}.jsonl", some_rows(20 * number))
    resolver = FileResolver(data_root=root)
    pin = resolver.own(own_section({"kind": "own", "file": "faq/"}, where="corpus"), where="corpus")
    assert pin.name == "faq" and pin.num_rows > 20
    assert place_of(pin.name, pin.revision, resolver.folders, root) == (root if is_below else tmp_path) / "faq"


@pytest.mark.parametrize("names", [("crash_test", "crash_report"), ("bus_tickets", "train_tickets"), ("a_test",)])
def test_a_word_in_a_name_is_no_split_unless_another_file_is_one(tmp_path: Path, names: tuple[str, ...]) -> None:
    """crash_test.csv was asked about beside any other file."""
    for number, name in enumerate(names):
        write(tmp_path / "own" / f"{name}.csv", some_rows(60 * number, 60))
    found = recognise("own", tmp_path / "own", NEAR)
    assert found.file.split is None and sum(found.sizes) == 60 * len(names) and "splits by" not in found.notes[0]
    assert ("taken for no split" in found.notes[0]) == (len(names) > 1)
    write(tmp_path / "own" / "new_train.csv", some_rows(600, 60))
    write(tmp_path / "own" / "test-00000-of-00002.csv", some_rows(660, 60))
    if len(names) > 1:
        with pytest.raises(DataError, match="which is a split by its name, beside"):
            recognise("own", tmp_path / "own", NEAR)
    else:
        assert recognise("own", tmp_path / "own", NEAR).file.split == "split"


@pytest.mark.parametrize(("one", "plain"), [("snli_dev", "snli"), ("test", "faq"), ("test_v2", "trainer"), ("test_faq", "faq")])
def test_a_split_beside_the_same_name_without_it_is_asked_about(tmp_path: Path, one: str, plain: str) -> None:
    for number, name in enumerate((one, plain)):
        write(tmp_path / "own" / f"{name}.csv", some_rows(60 * number, 60))
    with pytest.raises(DataError, match=rf"{one}\.csv, which is a split by its name, beside {plain}\.csv"):
        recognise("own", tmp_path / "own", NEAR)


def test_a_collection_for_retrieval_is_no_table(tmp_path: Path) -> None:
    """Titles and texts of documents were pairs, and queries were left out as rows without a text."""
    for name in ("corpus", "queries"):
        texts: Rows = [{"_id": str(n), "title": f"{name} {n}", "text": f"a text of {n} in {name}"} for n in range(60)]
        write(tmp_path / "beir" / f"{name}.jsonl", texts)
    (tmp_path / "beir/qrels").mkdir()
    with pytest.raises(DataError, match="queries, documents and judgements in files of their own, as BEIR has them") as refused:
        recognise("beir", tmp_path / "beir", NEAR)
    assert f"corpus: {{source: beir, split: null}}, folds: {{num: 5}}, with --data {tmp_path}." in refused.value.remedy


def test_a_pattern_is_reported_to_be_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "own/a.csv", some_rows(0))
    assert "own: its files are read as one table" in no_such_file(tmp_path / "own/*.csv", "own/*.csv").remedy


@pytest.mark.parametrize("is_split", [False, True])
def test_what_datasets_has_saved_is_read_with_its_splits(tmp_path: Path, is_split: bool) -> None:
    """It was to be written as Parquet first."""
    datasets = pytest.importorskip("datasets")
    data, folder = datasets.Dataset.from_list(some_rows(0, 60)), tmp_path / "own"
    parts = {"train": data.select(range(40)), "validation": data.select(range(40, 50)), "test": data.select(range(50, 60))}
    (datasets.DatasetDict(parts) if is_split else data).save_to_disk(folder, **({} if is_split else {"num_shards": 2}))
    (folder / "cache-1.arrow").write_bytes(b"what map keeps")
    found = recognise("own", folder, NEAR)
    assert found.file.shape == "faq" and sum(found.sizes) == 60
    if is_split:
        assert found.sizes == (40, 10, 10) and of_side(folder, found, TEST) == [f"how is {n}" for n in range(50, 60)]
        assert "splits by the names of the folders" in found.notes[0]
    else:
        assert "2 files as one table, data-00000-of-00002.arrow to" in found.notes[0]
        data.save_to_disk(tmp_path / "whole")
        file = tmp_path / "whole/data-00000-of-00001.arrow"
        assert recognise(file.name, file, NEAR).sizes == found.sizes


@pytest.mark.parametrize("is_stream", [False, True])
def test_arrow_files_are_read_as_file_or_stream(tmp_path: Path, is_stream: bool) -> None:
    table, path = pa.Table.from_pylist(some_rows(0, 60)), tmp_path / "own.arrow"
    with (pa.ipc.new_stream if is_stream else pa.ipc.new_file)(path, table.schema) as writer:
        writer.write_table(table)
    assert sum(recognise("own.arrow", path, NEAR).sizes) == 60
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"own\.arrow .*found .*; expected a file or stream of Arrow"):
        recognise("own.arrow", path, NEAR)
    with pytest.raises(DataError, match="encoding cp1252 for an Arrow file"):
        recognise("own.arrow", path, OwnFileOptions(encoding="cp1252"))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"state.json": "{}"}, "no names of files"),
        ({"state.json": '{"_data_files": [{"filename": "../other.arrow"}]}'}, "no names of files"),
        ({"state.json": '{"_data_files": [{"filename": "gone.arrow"}]}'}, "no such file"),
        ({"dataset_dict.json": '{"splits": "train"}'}, "no names of splits"),
        ({"dataset_dict.json": '{"splits": ["../train"]}'}, "no names of splits"),
        ({"dataset_dict.json": '{"splits": ["train"]}'}, "no such file"),
    ],
)
def test_saved_folders_that_lack_something_are_refused(tmp_path: Path, broken: dict[str, str], said: str) -> None:
    for name, content in broken.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError) as refused:
        recognise("own", tmp_path, NEAR)
    assert said.lower() in str(refused.value).lower()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to(path)])
def test_what_is_no_file_is_called_what_it_is(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Its own name was proposed in its place."""
    make(tmp_path / "faq.csv")
    with pytest.raises(DataError) as caught:
        FileResolver(data_root=tmp_path).own(OwnFileSection(file="faq.csv"), where="corpus")
    assert caught.value.found != "no such file" and "Did you mean" not in caught.value.remedy
