"""What a file is, by its content: its encoding, what parts its columns, and what is no table although it is called one."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.own.file_format import own_table
from sentdist.data.own.recognise import OwnFileOptions, recognise
from sentdist.data.own.usual_names import KNOWN_NAMES
from sentdist.data.sources.letters import hardly_western, utf_16_without_mark
from sentdist.data.sources.parting import separators
from sentdist.data.sources.pinned import inspect_source
from sentdist.data.sources.separated import FileFormat, encoding_of, recognised
from sentdist.data.texts import open_texts
from sentdist.errors import DataError

WEST = {
    "de": "Wie öffne ich das Gerät für große Bögen?;Drücken Sie „Menü“ – die Tür schließt sich, dann läuft das Gerät weiter…\n",
    "fr": "Où est l’été à la forêt, ça va ?;Elle a été très gênée par le bruit – c’était déjà fini, hélas, garçon !\n",
    "is": "Hvernig endurræsi ég tækið þegar það hættir að virka?;Ýttu á takkann í tíu sekúndur og bíddu þar til ljósið kviknar.\n",
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
    mixed = "".join(one for name, one in WEST.items() if name != "is")
    slip = WEST["de"] * 3 + "iPhone®pro\n"  # one odd sign among many letters
    for text in (*WEST.values(), mixed, slip):
        for content in (text.encode("cp1252"), plain(text).encode("latin-1")):
            path.write_bytes(content)
            assert hardly_western(content) is None and encoding_of("own.txt", path) == "cp1252"


@pytest.mark.parametrize(("encoding", "language", "shown"), OTHERS)
def test_other_encodings_of_the_west_are_asked_about(tmp_path: Path, encoding: str, language: str, shown: str) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(b"Frage;Antwort\n" + (plain(WEST[language]) * 20).encode(encoding))
    with pytest.raises(DataError, match=rf"{shown}.* in {encoding}"):
        recognised("own.csv", path, FileFormat(), ())
    assert recognised("own.csv", path, FileFormat(encoding=encoding), ()).encoding == encoding


@pytest.mark.parametrize("encoding", EAST)
def test_letters_of_the_east_are_asked_about(encoding: str) -> None:
    assert f"in {encoding}" in str(hardly_western((EAST[encoding] * 20).encode(encoding)))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_needs_no_mark(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "own.txt"
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


def test_texts_with_tags_are_no_page(tmp_path: Path) -> None:
    for first in ("<p>how</p>,so", "<htmlish,so", "version https,url"):
        (tmp_path / "own.csv").write_text(first + "\n" + "".join(f"one {n},other {n}\n" for n in range(40)))
        assert sum(recognise("own.csv", tmp_path / "own.csv", OwnFileOptions(near=None)).sizes) >= 40


@pytest.mark.parametrize(
    ("name", "separator", "header", "quoting", "line_end"),
    [
        ("own.csv", ",", True, csv.QUOTE_MINIMAL, "\n"),
        ("own.tsv", "\t", True, csv.QUOTE_ALL, "\r\n"),
        ("own.csv", ";", False, csv.QUOTE_MINIMAL, "\r\n"),
        ("own.csv", "\t", True, csv.QUOTE_MINIMAL, "\n"),
        ("own.txt", "\t", False, csv.QUOTE_ALL, "\n"),
    ],
)
def test_line_breaks_within_marks_part_nothing(
    name: str, separator: str, header: bool, quoting: int, line_end: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator, quoting=quoting, lineterminator=line_end)  # type: ignore[call-overload]
        writer.writerows([("question", "answer")] * header + ROWS)
    found = recognised(name, path, FileFormat(), sorted(KNOWN_NAMES))
    assert (found.separator, found.has_header) == (separator, header)
    assert [tuple(row.values()) for row in own_table(name, path, found).to_pylist()] == ROWS


def test_marks_within_cells_between_tabs_are_letters_and_a_cut_row_does_not_count() -> None:
    lines = [f'"Hi" she said {n}\ta 5" screen\n' for n in range(30)]
    assert separators(Path("own.tsv"), [*lines, "one cell alone\n"], ())[0] == "\t"
    lines = [f'question {n}\t"first\nsecond"\n' for n in range(30)]
    assert separators(Path("own.tsv"), "".join(lines).splitlines(keepends=True)[:-1], ()) == ["\t"]


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
