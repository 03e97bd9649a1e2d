"""Text that gzip has packed is read wherever it is read plain: as a corpus, a source, a task and a list of sentences."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest

from sentdist.data.own.files import own_table
from sentdist.data.sources import separated
from sentdist.data.sources.files import file_facts, known_names, locate, read_file
from sentdist.data.sources.separated import FileFormat, recognised
from sentdist.data.texts import looks_like_a_file, open_texts
from sentdist.errors import DataError
from sentdist.files import PACKABLE, PARQUET, TABLES, suffix_of
from sentdist.plan.task_names import no_task

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


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("suffix", sorted({suffix for suffix in TABLES if suffix.endswith(".gz")}))
def test_what_is_packed_is_read_as_what_is_plain(suffix: str, encoding: str, tmp_path: Path) -> None:
    """A `.csv.gz` was refused everywhere, a `.json` list by `encode` and `search`."""
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


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json"])
def test_damage_is_reported(suffix: str, tmp_path: Path) -> None:
    path, content = tmp_path / f"faq{suffix}.gz", _text(suffix).encode()
    for damaged in (gzip.compress(content)[:-12], content):
        path.write_bytes(damaged)
        for read in (lambda: _texts_of(path), lambda: read_file("faq", path), lambda: recognised("faq", path, FileFormat(), ())):
            with pytest.raises(DataError, match="cannot be read"):
                read()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".txt"])
def test_what_is_packed_and_not_called_so_is_reported(suffix: str, tmp_path: Path) -> None:
    """It was read as text in cp1252."""
    (path := tmp_path / f"faq{suffix}").write_bytes(gzip.compress(_text(suffix).encode()))
    for read in (lambda: recognised("faq", path, FileFormat(), ()), lambda: open_texts(str(path))):
        with pytest.raises(DataError, match=rf"found what gzip has packed; .* Call the file faq{suffix}\.gz"):
            read()


def test_other_names_mean_what_they_meant() -> None:
    assert suffix_of(Path("a.parquet.gz")) == suffix_of(Path("a.gz")) == ".gz" and suffix_of(Path("A.CSV.GZ")) == ".csv"
    assert f"{PARQUET}.gz" not in TABLES
    assert looks_like_a_file("faq.csv.gz") and looks_like_a_file("faq.json") and not looks_like_a_file("hello.")
    assert "sts=faq.csv.gz, for one" in no_task("faq.csv.gz")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json"])
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
