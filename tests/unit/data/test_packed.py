"""What gzip or zip has packed is read wherever it is read plain: tables, lists of sentences, a data set in BEIR's shape."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from pathlib import Path

import pytest

from sentdist.data.own.file_format import own_table
from sentdist.data.retrieval import read_retrieval
from sentdist.data.sources import separated
from sentdist.data.sources.files import file_facts, known_names, locate, read_file
from sentdist.data.sources.pinned import inspect_source
from sentdist.data.sources.separated import FileFormat, recognised
from sentdist.data.texts import open_texts
from sentdist.errors import DataError
from sentdist.stages.planning.resolve import FileResolver
from sentdist.table_files import PACKABLE, TABLES

ROWS = [{"question": f"Größe {n}, bitte?", "answer": f'"so" ist es, und {n}'} for n in range(30)]


def _text(suffix: str, *, separator: str = ",") -> str:
    if suffix == ".json":
        return json.dumps(ROWS)
    if suffix == ".jsonl":
        return "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS)
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter="\t" if suffix == ".tsv" else separator, quoting=csv.QUOTE_ALL)
    writer.writerows([("question", "answer"), *((row["question"], row["answer"]) for row in ROWS)])
    return out.getvalue()


def _texts_of(path: Path) -> list[str]:
    return [text for batch in open_texts(str(path), columns=("question",)).batches(7) for text in batch["question"]]


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
@pytest.mark.parametrize("suffix", sorted({suffix for suffix in TABLES if suffix.endswith(".gz")}))
def test_what_is_packed_is_read_as_what_is_plain(suffix: str, encoding: str, tmp_path: Path) -> None:
    plain, packed = tmp_path / f"faq{suffix.removesuffix('.gz')}", tmp_path / f"faq2{suffix}"
    content = _text(plain.suffix, separator=";").encode(encoding)
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    formats = [recognised(path.name, path, FileFormat(), ("question", "answer")) for path in (plain, packed)]
    assert formats[0] == formats[1]
    tables = [own_table(path.name, path, formats[0]) for path in (plain, packed)]
    assert tables[0].equals(tables[1]) and tables[0].to_pylist() == ROWS
    assert read_file("faq", plain).equals(read_file("faq2", packed))
    assert _texts_of(plain) == _texts_of(packed) == [row["question"] for row in ROWS]


def test_sources_are_found_by_their_names(tmp_path: Path) -> None:
    for suffix in PACKABLE:
        (tmp_path / f"my{suffix[1:]}{suffix}.gz").write_bytes(gzip.compress(_text(suffix).encode()))
    assert known_names(tmp_path) == ["mycsv", "myjson", "myjsonl", "mytsv"]
    for name in known_names(tmp_path):
        assert file_facts(name, locate(name, tmp_path)).num_rows == 30


def test_plain_lines_may_be_packed(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("eins\nzwölf\n".encode("cp1252")))
    texts = open_texts(str(tmp_path / "a.txt.gz"))
    assert [batch["sentence"] for batch in texts.batches(9)] == [["eins", "zwölf"]] and texts.notes == ["text in cp1252"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_damage_is_reported(suffix: str, tmp_path: Path) -> None:
    path, content = tmp_path / f"faq{suffix}.gz", _text(suffix).encode()
    for damaged in (gzip.compress(content)[:-12], content):
        path.write_bytes(damaged)
        for read in (lambda: _texts_of(path), lambda: read_file("faq", path), lambda: recognised("faq", path, FileFormat(), ())):
            with pytest.raises(DataError, match="cannot be read"):
                read()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_what_is_packed_and_not_called_so_is_reported(suffix: str, tmp_path: Path) -> None:
    (path := tmp_path / f"faq{suffix}").write_bytes(gzip.compress(_text(suffix).encode()))
    for read in (lambda: recognised("faq", path, FileFormat(), ()), lambda: open_texts(str(path))):
        with pytest.raises(DataError, match=rf"found what gzip has packed; .* Call the file faq{suffix}\.gz"):
            read()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_what_would_fill_the_memory_is_refused(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separated, "MOST_UNPACKED", 1 << 20)
    path, long = tmp_path / f"faq{suffix}.gz", [{"question": "a" * 30_000, "answer": "b"}] * 100
    header = {".csv": "question,answer\n", ".tsv": "question\tanswer\n"}.get(suffix)
    lines = [header.replace("question", row["question"]) if header else json.dumps(row) + "\n" for row in long]
    path.write_bytes(gzip.compress((json.dumps(long) if suffix == ".json" else (header or "") + "".join(lines)).encode()))
    for read in (lambda: file_facts("faq", path), lambda: recognised("faq", path, FileFormat(), ())):
        with pytest.raises(DataError) as caught:
            read()
        assert "unpacks to more than 1" in caught.value.found, caught.value


PARTS = {
    "corpus.jsonl": '{"_id": "d1", "title": "A title", "text": "and text"}\n{"_id": "d2", "title": "", "text": "only text"}\n',
    "queries.jsonl": '{"_id": "1", "text": "one"}\n{"_id": "2", "text": "two"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\n1\td2\t1\n",
    "qrels/train.tsv": "query-id\tcorpus-id\tscore\n2\td1\t2\n",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "unpacked"


def _zipped(path: Path, parts: dict[str, str], top: str = "small/") -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(f"{top}{name}", text)


@pytest.mark.parametrize("top", ["small/", "some/where/else/"])
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


def test_a_zip_is_unpacked_once_for_each_content(tmp_path: Path, cache: Path) -> None:
    _zipped(tmp_path / "a.zip", PARTS)
    read_retrieval("a.zip", data_root=tmp_path)
    next(cache.rglob("corpus.jsonl")).write_text("")
    assert len(read_retrieval("a.zip", data_root=tmp_path).documents) == 2, "what was left half unpacked is unpacked again"
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*.jsonl")}
    _zipped(tmp_path / "b.zip", PARTS, top="other/")
    read_retrieval("b.zip", data_root=tmp_path)
    assert before == {path: path.stat().st_mtime_ns for path in cache.rglob("*.jsonl")}
    _zipped(tmp_path / "a.zip", PARTS | {"qrels/test.tsv": "query-id\tcorpus-id\tscore\n1\td1\t1\n"})
    assert read_retrieval("a.zip", split="test", data_root=tmp_path).qrels == {"1": {"d1": 1}}


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
