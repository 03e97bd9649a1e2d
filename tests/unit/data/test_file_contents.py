"""What a file is, by its content: encoding, separator, header, marks, what stands for nothing, and what is no table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from sentdist.data.own.columns import KNOWN_NAMES
from sentdist.data.own.files import NOTHING, own_table
from sentdist.data.own.recognise import OwnFileOptions, RecognisedFile, recognise
from sentdist.data.own.rows import read_rows
from sentdist.data.own.split import DEV, TEST, TRAIN
from sentdist.data.sources import mirror
from sentdist.data.sources.csv_dialect import line_of_escaped_mark, line_of_open_quote
from sentdist.data.sources.files import known_names
from sentdist.data.sources.hub import inspect_source, read_source
from sentdist.data.sources.mirror import address_of, data_folder
from sentdist.data.sources.separated import FileFormat, encoding_of, hardly_western, recognised, utf_16_without_mark
from sentdist.data.texts import open_texts
from sentdist.errors import DataError
from tests.support.faulty_s3 import BUCKET, FaultyS3, faulty_s3

WEST = {
    "de": "Wie öffne ich das Gerät für große Bögen?;Drücken Sie „Menü“ – die Tür schließt sich, dann läuft das Gerät weiter…\n",
    "fr": "Où est l’été à la forêt, ça va ?;Elle a été très gênée par le bruit – c’était déjà fini, hélas, garçon !\n",
    "et": "Kuidas seadet lähtestada, kui see ei tööta öösel?;Vajutage nuppu ja oodake, kuni tuli süttib, õunapuu, õhtu, jõgi.\n",
    "pt": "Como posso reiniciar o aparelho, não está a funcionar?;Prima o botão e espere até a luz acender; então são três opções.\n",
}
OTHERS = [("mac-roman", "de", "Gerät"), ("mac-roman", "pt", "não"), ("cp850", "de", "Gerät"), ("cp850", "fr", "")]
EAST = {
    "cp1250": "Jak mogę zresetować urządzenie, gdy się zawiesi?;Proszę nacisnąć i przytrzymać przycisk, żeby się włączył.\n",
    "cp1254": "Cihazı nasıl sıfırlayabilirim, çalışmıyor?;Düğmeye on saniye basılı tutun ve ışığın yanmasını bekleyin.\n",
    "cp1257": "Kaip galiu iš naujo nustatyti įrenginį, kai jis neveikia?;Paspauskite mygtuką ir palaukite dešimt sekundžių.\n",
}
POINTER = (
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 1\n"
)
PAGE = '\n<!DOCTYPE html>\n<html lang="en"><head><title>\nSign in &amp; go</title></head>\n<body>a, b</body></html>\n'
ROWS = [(f"How do I do {n}?", f"Open page {n}, then wait." + "\nStep: do it, at once." * (n % 5 > 0)) for n in range(60)]


def plain(text: str) -> str:
    """Without the signs that old code pages have not."""
    return text.translate(str.maketrans({"„": '"', "“": '"', "–": "-", "…": "...", "’": "'"}))


def test_text_of_the_west_is_read_as_such(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    mixed = "".join(WEST.values())
    slip = WEST["de"] * 3 + "iPhone®pro\n"  # one odd sign among many letters
    for text in (*WEST.values(), mixed, slip):
        for content in (text.encode("cp1252"), plain(text).encode("latin-1")):
            path.write_bytes(content)
            assert hardly_western(content) is None and encoding_of("own.txt", path) == "cp1252"


def test_other_encodings_are_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    for encoding, language, shown in OTHERS:
        path.write_bytes(b"Frage;Antwort\n" + (plain(WEST[language]) * 20).encode(encoding))
        with pytest.raises(DataError, match=rf"{shown}.* in {encoding}"):
            recognised("own.csv", path, FileFormat(), ())
        assert recognised("own.csv", path, FileFormat(encoding=encoding), ()).encoding == encoding
    for encoding, text in EAST.items():
        assert f"in {encoding}" in str(hardly_western((text * 20).encode(encoding)))


def test_utf_16_needs_no_mark(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    for encoding in ("utf-16-le", "utf-16-be"):
        for text in (WEST["de"], "怎样重置路由器？,请按住按钮。\n", "Как сбросить?,Нажмите 😀\n"):
            path.write_bytes((text * 30).encode(encoding))
            assert encoding_of("own.txt", path) == encoding
            assert utf_16_without_mark((text * 30).encode(encoding)[:-1]) == encoding and utf_16_without_mark(text.encode()) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (POINTER, "a pointer of Git LFS"),
        (PAGE, "a web page, 'Sign in & go'"),
        ("<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "an XML document, 'AccessDenied'"),
        ("/annex/objects/MD5-s1--0cc175b9\n", "a pointer of git-annex"),
        ("PK\x03\x04 and so on", "a spreadsheet or an archive"),
    ],
)
def test_what_is_no_table_is_said_as_what_it_is(tmp_path: Path, content: str, said: str) -> None:
    for suffix in ("csv", "jsonl", "parquet"):
        path = tmp_path / f"{suffix}.{suffix}"
        path.write_text(content)
        for read in (
            lambda path=path: recognise(path.name, path, OwnFileOptions()),
            lambda path=path: open_texts(str(path)),
            lambda path=path: inspect_source(path.stem, data_root=tmp_path),
        ):
            with pytest.raises(DataError, match=said):
                read()


def test_a_parquet_file_by_another_name_is_said_as_that(tmp_path: Path) -> None:
    pq.write_table(pa.table({"question": ["how"], "answer": ["so"]}), tmp_path / "own.csv")
    with pytest.raises(DataError, match=r"a Parquet file.*own\.parquet"):
        recognise("own.csv", tmp_path / "own.csv", OwnFileOptions())
    (tmp_path / "own.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="encoding cp1251 for a Parquet file"):
        recognised("own.parquet", tmp_path / "own.parquet", FileFormat(encoding="cp1251"), ())


def test_line_breaks_within_marks_part_nothing(tmp_path: Path) -> None:
    for name, separator, header, quoting, end in (
        ("own.csv", ",", True, csv.QUOTE_MINIMAL, "\n"), ("own.tsv", "\t", True, csv.QUOTE_ALL, "\r\n"), ("own.csv", ";", False, csv.QUOTE_MINIMAL, "\r\n"),
        ("own.txt", "\t", False, csv.QUOTE_ALL, "\n"),
    ):  # fmt: skip
        path = tmp_path / name
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter=separator, quoting=quoting, lineterminator=end)  # type: ignore[call-overload]
            writer.writerows([("question", "answer")] * header + ROWS)
        found = recognised(name, path, FileFormat(), sorted(KNOWN_NAMES))
        assert (found.separator, found.has_header) == (separator, header)
        assert [tuple(row.values()) for row in own_table(name, path, found).to_pylist()] == ROWS


def test_commas_of_sentences_part_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    for separator in (";", "\t", "|"):
        path.write_text("".join(f"Where, please is page {n}?{separator}On floor {n}\n" for n in range(60)))
        assert recognised(path.name, path, FileFormat(), sorted(KNOWN_NAMES)).separator == separator
    path.write_text("".join(f"Well, this is sentence {n}.\n" for n in range(60)))
    with pytest.raises(DataError, match="one column of sentences"):
        recognised(path.name, path, FileFormat(), sorted(KNOWN_NAMES))
    assert recognised(path.name, path, FileFormat(separator=","), sorted(KNOWN_NAMES)).separator == ","
    path.write_text("left, right\n" + "".join(f"one {n}, other {n}\n" for n in range(60)))
    assert recognised(path.name, path, FileFormat(), ["left", "right"]).separator == ","


NEAR = OwnFileOptions(near=None)


def pairs(found: RecognisedFile, path: Path) -> set[tuple[str, str]]:
    """The pairs of all sides."""
    tables = (read_rows(path.name, path, found.file, side, revision=found.revision) for side in (TRAIN, DEV, TEST))
    return {(row["sent0"], row["sent1"]) for table in tables for row in table.to_pylist()}


def cells(path: Path, asked: FileFormat | None = None) -> list[dict[str, object]]:
    return own_table(path.name, path, recognised(path.name, path, asked or FileFormat(), sorted(KNOWN_NAMES))).to_pylist()


@pytest.mark.parametrize("name", ["own.csv", "own.jsonl"])
def test_words_for_no_value_are_none(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    rows = [
        {"question": f"question {n}", "answer": f" {NOTHING[n % len(NOTHING)]}" if n % 4 == 0 else f"answer {n}", "group": NOTHING[n % 3]}
        for n in range(60)
    ]
    if name == "own.csv":
        path.write_text("question,answer,group\n" + "".join(",".join(row.values()) + "\n" for row in rows))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    found = recognise(name, path, NEAR)
    assert "15 rows without a text left out" in found.notes[0] and "in 45 groups" in found.notes[1]
    assert pairs(found, path) == {(f"question {n}", f"answer {n}") for n in range(60) if n % 4}


@pytest.mark.parametrize("end", ["\n\n", ' , ,\n,"",\n'])
def test_blank_rows_at_the_end_are_no_rows(tmp_path: Path, end: str) -> None:
    path = tmp_path / "own.csv"
    rows = [f"one {n},other {n},{n % 7}.5\n" for n in range(60)]
    for lacks, num_left_out in (("", 0), ("one,,\n,,\n,other,1\n\u200b,other,2\n", 4)):
        path.write_text("a,b,score\n" + "".join(rows[:40]) + lacks + "".join(rows[40:]) + end, encoding="utf-8")
        found = recognise("own.csv", path, NEAR)
        assert sum(found.sizes) == 60 and (f"{num_left_out} rows without a text or a score" in found.notes[0]) == (num_left_out > 0)
    path.write_text("a,b,score\n" + end)
    with pytest.raises(DataError, match="no rows"):
        recognise("own.csv", path, OwnFileOptions(near=None, has_header=True))


def test_letters_that_were_lost_before_and_html_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    lost = {"schÃ¶n": True, "sch\ufffdn": True, "GRÃ–SSE": True, "Ãlvaro CÂMARA": False, "schön": False, "AMANHÃ…": False}
    for word, is_reported in (lost | {"Press it.<br>Then": True, "Tom &amp; Jerry": True, "a < b & c; x > y": False}).items():
        path.write_text("question\tanswer\n" + "".join(f"one {n}\t{word if n < 3 else 'other'} {n}\n" for n in range(60)), encoding="utf-8")
        notes = recognise("own.tsv", path, NEAR).notes
        said = f"3 texts with characters like {word!r}" if word in lost else "3 texts with HTML"
        assert (said in notes[-1]) == is_reported and len(notes) == 2 + is_reported, word


def test_sentences_alone_are_reported_to_be_no_pairs(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("text\n" + "".join(f"This is sentence {n}{', with more' * (n % 3 == 0)}.\n" for n in range(60)))
    with pytest.raises(DataError, match=r"one text a row, such as 'This is .*unsupervised SimCSE"):
        recognise("own.csv", tmp_path / "own.csv", OwnFileOptions())
    (tmp_path / "own.csv").write_text("".join(["No comma", "One, here", "Two, of, them"][n % 3] + f" {n}\n" for n in range(40)))
    with pytest.raises(DataError, match="another number of them in each line"):
        cells(tmp_path / "own.csv")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('a,b\nx,y\n"who is he,a man\nwhen,now\n"why not",because\n', 3),
        ('a,b\n"who is he,a man\nwhen,now\nx,y\n', 2),
        ('a,b\n"two\nlines",y\n"Hello" he said,y\n"who is he,a man\nwhen,"now"\n', 5),
        ('a,b\n"two\nlines",y\n"Hello" he said,y\nwhat is "this,y\n"say ""hi""\nto me","now"\n', None),
        ("", None),
    ],
)
def test_the_line_that_swallows_others_is_found(content: str, line: int | None) -> None:
    assert line_of_open_quote(io.StringIO(content, newline=""), ",") == line


@given(st.lists(st.tuples(st.text('ab\\\\",\n ') | st.text(), st.text()), min_size=1))
def test_what_a_program_has_written_is_let_through(rows: list[tuple[str, str]]) -> None:
    written = io.StringIO(newline="")
    csv.writer(written).writerows([(one.replace("\0", ""), other.replace("\0", "")) for one, other in rows])
    assert line_of_open_quote(io.StringIO(written.getvalue(), newline=""), ",") is None
    assert line_of_escaped_mark(io.StringIO(written.getvalue(), newline=""), ",") is None


ESCAPED = 'question,answer\nhow are you,fine\n"he said \\"hi\\" to me","so, what"\nx,y\n'


def test_marks_behind_backslashes_are_refused_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "faq.csv"
    path.write_text(ESCAPED)
    said = r"faq\.csv, line 3: found quotation marks behind backslashes"
    with pytest.raises(DataError, match=said):
        own_table("faq.csv", path, FileFormat(encoding="utf-8", separator=",", has_header=True))
    with pytest.raises(DataError, match=said):
        read_source("faq", data_root=tmp_path)
    with pytest.raises(DataError, match=said):
        list(open_texts(str(path), columns=["question"]).batches(10))


CSV = "sent0,sent1,hard_neg\n" + "".join(f"a {n},b {n},c {n}\n" for n in range(100))


@pytest.fixture(scope="module")
def s3() -> Iterator[FaultyS3]:
    with faulty_s3() as server:
        yield server


@pytest.fixture
def root(s3: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a data root with a few files."""
    for name, value in {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mirror._listing.cache_clear()
    filesystem, _ = fs.FileSystem.from_uri(s3.root("data"))
    for name in ("nli/mine.csv", "nli/minerals.csv", "own.csv"):
        with filesystem.open_output_stream(f"{BUCKET}/data/{name}") as stream:
            stream.write(CSV.encode())
    return s3.root("data")


def test_only_what_is_named_comes_and_only_once(root: str, s3: FaultyS3) -> None:
    folder = data_folder(root)
    assert folder is not None and address_of(folder) == root
    assert inspect_source("nli/mine", data_root=folder).num_rows == 100
    assert read_source("nli/mine", data_root=folder).num_rows == 100
    assert sorted(path.name for path in folder.rglob("*.csv")) == ["mine.csv"]
    assert known_names(folder) == ["nli/mine", "nli/minerals", "own"]
    before = s3.num_requests
    read_source("nli/mine", data_root=data_folder(root))
    assert s3.num_requests == before


def test_what_was_renamed_or_removed_behind_the_address_goes_away(root: str) -> None:
    folder = data_folder(root)
    assert folder is not None
    for name in ("nli/mine", "nli/minerals", "own.csv"):
        read_source(name, data_root=folder)
    (folder / "nli/mine.csv.0123.part").write_text("another process writes here")
    (folder / "nli/mine.tsv").write_text("of an earlier day")
    filesystem, _ = fs.FileSystem.from_uri(root)
    filesystem.move(f"{BUCKET}/data/nli/mine.csv", f"{BUCKET}/data/nli/mine.jsonl")
    filesystem.delete_file(f"{BUCKET}/data/own.csv")
    with filesystem.open_output_stream(f"{BUCKET}/data/nli/mine.jsonl") as stream:
        stream.write(b'{"sent0": "a", "sent1": "b"}\n')
    mirror._listing.cache_clear()
    assert read_source("nli/mine", data_root=folder).num_rows == 1
    assert sorted(path.name for path in (folder / "nli").iterdir()) == ["mine.csv.0123.part", "mine.jsonl", "minerals.csv"]
    with pytest.raises(DataError, match="no such file"):
        inspect_source("own", data_root=folder)
    filesystem.delete_file(f"{BUCKET}/data/nli/mine.jsonl")  # the fixture's own file is what the other tests begin with


def test_what_cannot_be_reached_is_reported_in_a_sentence(root: str, s3: FaultyS3) -> None:
    folder = data_folder(root)
    s3.be("no right")
    try:
        with pytest.raises(DataError, match=r"found .*expected data that can be read"):
            inspect_source("nli/mine", data_root=folder)
    finally:
        s3.be(None)
    with pytest.raises(DataError, match="expected a folder, or an s3://"):
        data_folder("ftq://place/data")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_name_of_another_form_and_one_without_revision_are_refused() -> None:
    for name in ("hub:stsb", "hub:", "hub:a/b/c", "hub:/b"):
        with pytest.raises(DataError, match="hub:OWNER/NAME"):
            inspect_source(name, hub_revision=COMMIT)
    for look in (inspect_source, read_source):
        with pytest.raises(DataError, match="no revision; expected the commit"):
            look("hub:owner/name")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None, str]]:
    """A Hub with one data set of two splits, and what it was asked for."""
    import datasets
    import huggingface_hub

    asked: list[tuple[str, str | None, str]] = []
    parts = {
        "train": datasets.Dataset.from_dict({"sentence1": ["a", "b"], "sentence2": ["c", "d"]}),
        "test": datasets.Dataset.from_dict({"sentence1": ["e"], "sentence2": ["f"]}),
    }

    def dataset_info(self: object, path: str, *, revision: str, **settings: Any) -> SimpleNamespace:
        if path != "owner/name":
            raise ConnectionError("no such host")
        return SimpleNamespace(sha="1" * 40 if revision == "v1" else COMMIT)

    def builder(path: str, config: str | None, *, revision: str) -> SimpleNamespace:
        asked.append((path, config, revision))
        if config not in (None, "default"):
            raise ValueError(f"BuilderConfig '{config}' not found. Available: ['default']")
        sizes = {name: SimpleNamespace(num_examples=len(part)) for name, part in parts.items()}
        return SimpleNamespace(info=SimpleNamespace(splits=sizes, features=parts["train"].features))

    def loaded(path: str, config: str | None, *, revision: str) -> datasets.DatasetDict:
        asked.append((path, config, revision))
        return datasets.DatasetDict(parts)

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    monkeypatch.setattr(datasets, "load_dataset_builder", builder)
    monkeypatch.setattr(datasets, "load_dataset", loaded)
    return asked


def test_the_hub_is_asked_for_the_configuration_and_revision_that_are_named(hub: list[tuple[str, str | None, str]]) -> None:
    table = read_source("hub:owner/name:default", split="train", hub_revision=COMMIT)
    assert table.to_pylist() == [{"sentence1": "a", "sentence2": "c"}, {"sentence1": "b", "sentence2": "d"}]
    assert {str(kind) for kind in table.schema.types} == {"large_string"}
    assert read_source("hub:owner/name", hub_revision=COMMIT, columns=("split",))["split"].to_pylist() == ["train", "train", "test"]
    facts = inspect_source("hub:owner/name", hub_revision="v1")
    assert (facts.revision, facts.num_rows, facts.columns, facts.splits) == ("1" * 40, 3, ("sentence1", "sentence2"), ("train", "test"))
    assert set(hub) == {("owner/name", "default", COMMIT), ("owner/name", None, COMMIT), ("owner/name", None, "1" * 40)}


@pytest.mark.usefixtures("hub")
def test_unknown_splits_columns_and_configurations() -> None:
    for look in (inspect_source, read_source):
        with pytest.raises(DataError, match="expected one of train, test"):
            look("hub:owner/name", split="dev", hub_revision=COMMIT)
        with pytest.raises(DataError, match="score missing"):
            look("hub:owner/name", hub_revision=COMMIT, columns=("score",))
    with pytest.raises(DataError, match=r"'strange' not found.*Name one of the configurations"):
        inspect_source("hub:owner/name:strange", hub_revision=COMMIT)
    with pytest.raises(DataError, match="no answer from the hub"):
        inspect_source("hub:owner/other", hub_revision=COMMIT)
