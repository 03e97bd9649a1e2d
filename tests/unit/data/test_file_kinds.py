"""JSON as people and programs write it, and what gzip or zip has packed."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import pickle
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data import generated
from sentdist.data.own.files import own_table
from sentdist.data.retrieval import read_retrieval
from sentdist.data.sources import separated
from sentdist.data.sources.file_facts import recall
from sentdist.data.sources.files import GENERATED_SOURCES, file_facts, read_file, read_lines, read_objects, read_text_table
from sentdist.data.sources.hub import inspect_source, read_source
from sentdist.data.sources.separated import FileFormat, recognised
from sentdist.data.texts import open_texts
from sentdist.errors import DataError
from sentdist.files import TABLES
from sentdist.stages.planning.resolve import FileResolver

LINES = """{"title": "a", "id": "2020-01-01", "with": ["2020-01-01", "2021-06-30 10:00:00"], "about": {"day": "2020-01-01", "views": 3}}
{"title": "b", "id": "2020-01-02", "with": [], "about": {"day": "2020-01-02", "views": 4}}
"""
FAQ = '[{"question": "how", "answer": "so"}]'


def test_texts_that_look_like_dates_stay_texts(tmp_path: Path) -> None:
    plain, packed = tmp_path / "rows.jsonl", tmp_path / "rows.jsonl.gz"
    plain.write_text(LINES)
    packed.write_bytes(gzip.compress(LINES.encode()))
    assert read_lines(plain).to_pylist() == [json.loads(line) for line in LINES.splitlines()]
    assert read_lines(packed) == read_lines(plain) == read_lines(io.BytesIO(LINES.encode()))


def test_the_only_list_of_objects_may_stand_under_a_key(tmp_path: Path) -> None:
    for text in (FAQ, f'{{"data": {FAQ}}}', f'{{"version": 2, "next": null, "name": "faq", "rows": {FAQ}}}'):
        (tmp_path / "faq.json").write_text(text)
        assert read_objects(tmp_path / "faq.json").to_pylist() == [{"question": "how", "answer": "so"}]
        assert next(open_texts(str(tmp_path / "faq.json"), columns=["answer"]).batches(9)) == {"answer": ["so"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{{"train": {FAQ}, "test": {FAQ}}}', "several lists of objects, under train, test"),
        (f'{{"data": {FAQ}, "columns": ["a"]}}', "a list of objects under data, beside columns"),
        ('{"question": ["how"], "answer": ["so"]}', "an object of columns, question, answer"),
        ('{"how": "so", "who": "she"}', "an object with the keys how, who"),
        ('[[{"how": "so"}]]', "a list of lists"),
        ('["how", "so"]', "a list of texts"),
        ('[{"question": "how"}, "so"]', "a list of objects and others"),
        ("7", "found 7"),
        ("[", "cannot be read"),
        ('{"a": 1}\n{"a": 2}\n{a: 3}\n', "in line 3"),
        ('{"a": 1},\n{"a": 2}\n', "in line 1"),
    ],
)
def test_json_of_another_shape_is_reported(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "faq.json").write_text(text)
    with pytest.raises(DataError, match=said):
        read_objects(tmp_path / "faq.json")


def test_an_array_a_row_is_read_as_columns(tmp_path: Path) -> None:
    named = [{"question": "Where is it?", "answer": "Here."}]
    for name, text, rows in (
        ("rows.jsonl", '["Where is it?", "Here."]\n\n["Who?", "I."]\n', [{"1": "Where is it?", "2": "Here."}, {"1": "Who?", "2": "I."}]),
        ("rows.json", '[["question", "answer"], ["Where is it?", "Here."]]', named),
    ):
        (tmp_path / name).write_text(text)
        assert read_text_table(tmp_path / name, FileFormat(), may_repeat=True).to_pylist() == rows
        first = next(iter(rows[0]))
        assert list(open_texts(str(tmp_path / name), columns=[first]).batches(10)) == [{first: [row[first] for row in rows]}]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rows.jsonl", '["a", "b"]\n["c"]\n', "line 2: found 1 value; expected 2"),
        ("rows.json", '[["a", "b"], ["c"]]', "list 2: found 1 value; expected 2"),
        ("rows.jsonl", '["a", "b"]\n{"c": "d"}\n', "line 2: .*expected a JSON object"),
        ("rows.jsonl", '{"c": "d"}\n["a", "b"]\n', "line 2: .*or an array in each"),
        ("rows.jsonl", '"a sentence"\n', "a .txt file"),
    ],
)
def test_rows_of_other_lengths_or_kinds_are_refused(name: str, text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError, match=said):
        read_text_table(path, FileFormat(), may_repeat=True)


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


def test_what_is_packed_and_not_called_so_is_reported(tmp_path: Path) -> None:
    (path := tmp_path / "faq.jsonl").write_bytes(gzip.compress(_text(".jsonl").encode()))
    for read in (lambda: recognised("faq", path, FileFormat(), ()), lambda: open_texts(str(path))):
        with pytest.raises(DataError, match=r"a gzip file; .* Call the file faq\.jsonl\.gz"):
            read()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_what_would_fill_the_memory_is_refused(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separated, "MOST_UNPACKED", 1 << 20)
    path, long = tmp_path / f"faq{suffix}.gz", [{"question": "a" * 30_000, "answer": "b"}] * 100
    lines = ["question,answer", *(",".join(row.values()) for row in long)] if suffix == ".csv" else [json.dumps(row) for row in long]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
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


def test_a_zip_of_something_else_is_reported(tmp_path: Path) -> None:
    for parts, said in (
        ({"rows.csv": "a,b"}, r"no corpus\.jsonl in it"),
        ({"a/corpus.jsonl": "", "b/corpus.jsonl": ""}, r"2 corpus\.jsonl in it"),
        ({"corpus.jsonl": PARTS["corpus.jsonl"]}, r"corpus\.jsonl alone"),
    ):
        _zipped(tmp_path / "a.zip", parts)
        with pytest.raises(DataError, match=said):
            inspect_source("a.zip", data_root=tmp_path)


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
            DataError, match="no rows" if name not in damaged else "cannot be read|3 fields instead of 2|line 1: found one,two"
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
    rows = "\n".join("\t".join(str(cell) for cell in row.values()) for row in generated.read(name).to_pylist())
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


def test_a_revision_stands_for_one_content() -> None:
    assert (generated.REVISION, {name: _digest(name) for name in DIGESTS}) == ("helpdesk-1", DIGESTS)
    assert tuple(generated.GENERATED) == GENERATED_SOURCES


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
