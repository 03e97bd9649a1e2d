"""Encodings that nothing in a file names: what is read as cp1252 is text of the West, and UTF-16 needs no mark."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from sentdist.data.sources.separated import FileFormat, encoding_of, hardly_western, recognised, utf_16_without_mark
from sentdist.errors import DataError

WEST = {
    "de": "Wie öffne ich das Gerät für große Bögen?;Drücken Sie „Menü“ – die Tür schließt sich, dann läuft das Gerät weiter…\n",
    "fr": "Où est l’été à la forêt, ça va ?;Elle a été très gênée par le bruit – c’était déjà fini, hélas, garçon !\n",
    "es": "¿Cómo está el niño mañana?;¡Mañana será otro día, señor Muñoz! Según él, aquí también.\n",
    "da": "Hvordan nulstiller jeg enheden, når den ikke længere virker?;Tryk på knappen, og hold den nede i få sekunder, før den går.\n",
    "is": "Hvernig endurræsi ég tækið þegar það hættir að virka?;Ýttu á takkann í tíu sekúndur og bíddu þar til ljósið kviknar.\n",
    "fi": "Miten nollaan laitteen, jos se ei käynnisty?;Paina painiketta ja odota, että merkkivalo syttyy, älä päästä irti.\n",
    "et": "Kuidas seadet lähtestada, kui see ei tööta öösel?;Vajutage nuppu ja oodake, kuni tuli süttib, õunapuu, õhtu, jõgi.\n",
    "pt": "Como posso reiniciar o aparelho, não está a funcionar?;Prima o botão e espere até a luz acender; então são três opções.\n",
    "it": "Perché il dispositivo non funziona più, com’è possibile?;Tenga premuto finché la luce si accende; così può già riavviarlo.\n",
    "ca": "Què és això, l·lusió?;Així doncs, l’ordinador s’engegarà d’aquí a cinc minuts, té raó.\n",
}  # fmt: skip
OTHERS = {
    ("mac-roman", "de"): "Gerät in mac-roman", ("mac-roman", "fr"): "Où in mac-roman", ("mac-roman", "es"): "in mac-roman",
    ("mac-roman", "da"): "når in mac-roman", ("mac-roman", "pt"): "não in mac-roman", ("cp850", "de"): "Gerät in cp850",
    ("cp850", "fr"): "in cp850", ("cp850", "da"): "når in cp850",
}  # fmt: skip
EAST = {
    "cp1250": "Jak mogę zresetować urządzenie, gdy się zawiesi?;Proszę nacisnąć i przytrzymać przycisk, żeby się włączył.\n",
    "iso8859-2": "Jak můžu resetovat zařízení, když se zasekne?;Stiskněte tlačítko a držte ho deset vteřin, žluťoučký kůň.\n",
    "cp1254": "Cihazı nasıl sıfırlayabilirim, çalışmıyor?;Düğmeye on saniye basılı tutun ve ışığın yanmasını bekleyin.\n",
    "cp1257": "Kaip galiu iš naujo nustatyti įrenginį, kai jis neveikia?;Paspauskite mygtuką ir palaukite dešimt sekundžių.\n",
}


def plain(text: str) -> str:
    """Without the signs that old code pages have not."""
    return text.translate(str.maketrans({"„": '"', "“": '"', "–": "-", "…": "...", "’": "'"}))


@pytest.mark.parametrize("language", WEST)
def test_text_of_the_west_is_read_as_such(tmp_path: Path, language: str) -> None:
    text, path = WEST[language], tmp_path / "own.txt"
    mixed = "".join(one for name, one in WEST.items() if name != "is")
    for content in (text.encode("cp1252"), plain(text).encode("latin-1"), mixed.encode("cp1252")):
        path.write_bytes(content)
        assert hardly_western(content) is None and encoding_of("own.txt", path) == "cp1252"


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(WEST, 2)])
def test_two_languages_of_the_west_are_read_as_such(one: str, other: str) -> None:
    assert hardly_western((WEST[one] + WEST[other]).encode("cp1252") * 20) is None


@pytest.mark.parametrize(("encoding", "language"), OTHERS)
def test_other_encodings_of_the_west_are_asked_about(tmp_path: Path, encoding: str, language: str) -> None:
    """fŸr was trained on for für."""
    path = tmp_path / "own.csv"
    path.write_bytes(b"Frage;Antwort\n" + (plain(WEST[language]) * 20).encode(encoding))
    with pytest.raises(DataError, match=rf"if it were in cp1252 \(.*{OTHERS[encoding, language]}.*--encoding cp1251 \(tune\)"):
        recognised("own.csv", path, FileFormat(), ())
    with pytest.raises(DataError, match="Save it as UTF-8 text"):
        encoding_of("own.csv", path)
    assert recognised("own.csv", path, FileFormat(encoding=encoding), ()).encoding == encoding


@pytest.mark.parametrize("encoding", EAST)
def test_letters_of_the_east_are_asked_about(encoding: str) -> None:
    assert f"in {encoding}" in str(hardly_western((EAST[encoding] * 20).encode(encoding))).replace("in cp1250", "in iso8859-2 in cp1250")


def test_one_odd_sign_among_many_letters_is_a_slip() -> None:
    assert hardly_western((WEST["de"] * 3 + "iPhone®pro\n").encode("cp1252")) is None


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", [*WEST.values(), "怎样重置路由器？,请按住按钮。\n", "Как сбросить?,Нажмите 😀\n", "كيف أعيد ضبط,اضغط\n"])
def test_utf_16_needs_no_mark(tmp_path: Path, encoding: str, text: str) -> None:
    path = tmp_path / "own.txt"
    path.write_bytes((text * 30).encode(encoding))
    assert encoding_of("own.txt", path) == encoding
    assert utf_16_without_mark((text * 30).encode(encoding)[:-1]) == encoding and utf_16_without_mark(text.encode()) is None


def test_an_encoding_said_of_parquet_has_no_effect(tmp_path: Path) -> None:
    (tmp_path / "own.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="encoding cp1251 for a Parquet file"):
        recognised("own.parquet", tmp_path / "own.parquet", FileFormat(encoding="cp1251"), ())
