"""A data set in BEIR's shape within the zip that it is downloaded as."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from sentdist.data.retrieval import read_retrieval
from sentdist.data.sources.hub import inspect_source
from sentdist.errors import DataError
from sentdist.stages.planning.resolve import FileResolver

PARTS = {
    "corpus.jsonl": '{"_id": "d1", "title": "A title", "text": "and text"}\n{"_id": "d2", "title": "", "text": "only text"}\n',
    "queries.jsonl": '{"_id": "1", "text": "one"}\n{"_id": "2", "text": "two"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\n1\td2\t1\n",
    "qrels/train.tsv": "query-id\tcorpus-id\tscore\n2\td1\t2\n",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "unpacked"


def _zipped(path: Path, parts: dict[str, str], top: str = "small/") -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(f"{top}{name}", text)


@pytest.mark.parametrize("top", ["small/", "", "some/where/else/"])
def test_a_zip_is_the_folder_in_it(top: str, tmp_path: Path, cache: Path) -> None:
    for name, text in PARTS.items():
        (path := tmp_path / "plain" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    _zipped(tmp_path / "small.zip", {**PARTS, "../outside.txt": "no", "README.md": "no"}, top)
    zipped, plain = (read_retrieval(name, data_root=tmp_path) for name in ("small.zip", "plain"))
    assert (zipped.documents, zipped.queries, zipped.qrels) == (plain.documents, plain.queries, plain.qrels)
    facts = inspect_source("small.zip", split="train", data_root=tmp_path)
    assert facts == inspect_source("plain", split="train", data_root=tmp_path), "a digest of the same files"
    assert FileResolver(data_root=tmp_path).is_retrieval("small.zip")
    (folder,) = cache.iterdir()
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == PARTS.keys(), "nothing else is unpacked"


def test_it_is_unpacked_once_for_each_content(tmp_path: Path, cache: Path) -> None:
    _zipped(tmp_path / "a.zip", PARTS)
    read_retrieval("a.zip", data_root=tmp_path)
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*.jsonl")}
    _zipped(tmp_path / "b.zip", PARTS, top="other/")
    read_retrieval("b.zip", data_root=tmp_path)
    assert before == {path: path.stat().st_mtime_ns for path in cache.rglob("*.jsonl")}
    _zipped(tmp_path / "a.zip", PARTS | {"qrels/test.tsv": "query-id\tcorpus-id\tscore\n1\td1\t1\n"})
    assert read_retrieval("a.zip", split="test", data_root=tmp_path).qrels == {"1": {"d1": 1}}


def test_what_was_left_half_unpacked_is_unpacked_again(tmp_path: Path, cache: Path) -> None:
    _zipped(tmp_path / "a.zip", PARTS)
    read_retrieval("a.zip", data_root=tmp_path)
    next(cache.rglob("corpus.jsonl")).write_text("")
    assert len(read_retrieval("a.zip", data_root=tmp_path).documents) == 2


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"rows.csv": "a,b"}, r"found no corpus\.jsonl in it; expected a zip of corpus\.jsonl"),
        ({"a/corpus.jsonl": "", "b/corpus.jsonl": ""}, r"found 2 corpus\.jsonl in it.*name one of its folders"),
        ({"corpus.jsonl": PARTS["corpus.jsonl"]}, r"found corpus\.jsonl alone; expected queries\.jsonl and qrels/SPLIT\.tsv"),
    ],
)
def test_a_zip_of_something_else_is_reported(parts: dict[str, str], message: str, tmp_path: Path) -> None:
    _zipped(tmp_path / "a.zip", parts)
    with pytest.raises(DataError, match=message):
        inspect_source("a.zip", data_root=tmp_path)


def test_a_damaged_zip_is_reported(tmp_path: Path) -> None:
    _zipped(tmp_path / "a.zip", {name: text * 50 for name, text in PARTS.items()})
    whole = (tmp_path / "a.zip").read_bytes()
    place = whole.index(b"corpus.jsonl") + 20
    for content in (b"PK", whole[: len(whole) // 2], whole[:place] + bytes(8) + whole[place + 8 :]):
        (tmp_path / "a.zip").write_bytes(content)
        with pytest.raises(DataError, match=r"a\.zip.*expected a zip of corpus\.jsonl"):
            inspect_source("a.zip", data_root=tmp_path)
