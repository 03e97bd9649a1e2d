"""A folder of the parts of one table, as Spark, `datasets` and pandas write it: read as one, or refused with the reason."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.own.recognise import OwnFileOptions, RecognisedFile, recognise
from sentdist.data.own.rows import read_rows
from sentdist.data.own.split import DEV, TEST, TRAIN
from sentdist.errors import DataError

Rows = list[dict[str, object]]
NEAR = OwnFileOptions(near=None)


def some_rows(first: int, number: int = 20) -> Rows:
    return [{"question": f"how is {n}", "answer": f"it is so {n}"} for n in range(first, first + number)]


def write(path: Path, rows: Rows) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode()))
    elif path.suffix == ".jsonl":
        path.write_text(lines)
    else:
        path.write_text("".join(",".join(map(str, row)) + "\n" for row in [rows[0].keys(), *(row.values() for row in rows)]))


def of_side(folder: Path, found: RecognisedFile, side: int) -> list[str]:
    rows = read_rows(folder.name, folder, found.file, side, revision=found.revision).to_pylist()
    return [row.get("sent0") or row["sentence1"] for row in rows]


@pytest.mark.parametrize("suffix", [".snappy.parquet", ".csv", ".jsonl.gz"])
def test_the_parts_in_a_folder_are_one_table(tmp_path: Path, suffix: str) -> None:
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


def test_splits_in_the_names_of_files_are_splits(tmp_path: Path) -> None:
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


def test_parts_that_are_no_parts_of_one_table_are_reported(tmp_path: Path) -> None:
    """Files of other columns, of another kind, without a header, of other encodings or types, and none."""

    def said_of(name: str, **files: bytes) -> str:
        folder = tmp_path / name
        write(folder / "a.csv", some_rows(0))
        for file, content in files.items():
            (folder / file.replace("_", ".")).write_bytes(content)
        with pytest.raises(DataError) as refused:
            recognise("own", folder, NEAR)
        return f"{refused.value.where}: {refused.value.found}"

    assert said_of("columns", b_csv=b"question,reply\nx,y\n").startswith("own/b.csv: no column answer but a column reply")
    assert "several kinds, such as b.jsonl, a.csv" in said_of("kinds", b_jsonl=b"{}")
    assert "no column question, answer but a column how is it" in said_of("header", b_csv=b"how is it,it is so\nhow is that,so\n")
    umlauts = "question,answer\nGröße,so\n"
    assert "in cp1252" in said_of("encodings", b_csv=umlauts.encode(), c_csv=umlauts.encode("cp1252"))
    write(tmp_path / "types/a.parquet", some_rows(20))
    write(tmp_path / "types/b.parquet", [{"question": 1, "answer": "y"}])
    write(tmp_path / "none/data/a.parquet", some_rows(20))
    for name, found in (("types", "values of type int64"), ("none", "a folder without a table")):
        with pytest.raises(DataError, match=found):
            recognise("own", tmp_path / name, NEAR)


def test_a_collection_for_retrieval_is_no_table(tmp_path: Path) -> None:
    for name in ("corpus", "queries"):
        texts: Rows = [{"_id": str(n), "title": f"{name} {n}", "text": f"a text of {n} in {name}"} for n in range(60)]
        write(tmp_path / "beir" / f"{name}.jsonl", texts)
    (tmp_path / "beir/qrels").mkdir()
    with pytest.raises(DataError, match="queries, documents and judgements in files of their own, as BEIR has them") as refused:
        recognise("beir", tmp_path / "beir", NEAR)
    assert f"corpus: {{source: beir, split: null}}, folds: {{num: 5}}, with --data {tmp_path}." in refused.value.remedy


@pytest.mark.parametrize("is_split", [False, True])
def test_what_datasets_has_saved_is_read_with_its_splits(tmp_path: Path, is_split: bool) -> None:
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


def test_saved_folders_that_lack_something_are_refused(tmp_path: Path) -> None:
    for name, content, found in (
        ("state.json", '{"_data_files": [{"filename": "gone.arrow"}]}', "no such file"),
        ("state.json", '{"_data_files": [{"filename": "../other.arrow"}]}', "no names of files"),
        ("dataset_dict.json", '{"splits": ["../train"]}', "no names of splits"),
        ("dataset_dict.json", '{"splits": ["train"]}', "no such file"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=f"(?i){found}"):
            recognise("own", tmp_path, NEAR)
