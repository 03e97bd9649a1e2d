"""Whether text in bytes can be in an encoding that nothing in the file names, by the letters that it would have."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from itertools import product

# What no word of the West has within it; ’ ´ · … – — and soft hyphens may stand there.
_ODD_SIGN = "[€‚ƒ„†‡ˆ‰‹“•˜™›¡¢£¤¥¦§¨©ª«¬®¯°±²³¶¸¹º»¼½¾¿](?=[a-zß-ÿœšž])"
_ODD_CAPITAL = "[À-ÖØ-ÞŠŒŽŸ](?=[a-zß-ÿ ])"  # Mac Roman's ä, ö, ü
_ODD = re.compile(f"(?<=[a-zß-ÿ])(?:{_ODD_SIGN}|{_ODD_CAPITAL})|[\x80-\x9f]")  # the last are no letters of cp1252
_WORD = r"[^\s,;:|\"'()]"
LEAST_ODD, LEAST_STRANGE = 0.05, 0.04  # of all that is beyond ASCII
# Letters that no language of the West has both; in other code pages they are č and ř, ő and ű, ş and ü, š and ė. In English text with
# names of many lands each of two is below the share.
STRANGERS = (("ìï", "ø"), ("èù", "ø"), ("õ", "û"), ("ð", "çüâëàè"), ("þ", "çüâëãêîàèø"), ("ý", "çüãêë"), ("æ", "ê"))
OTHERS = ("mac-roman", "cp850", "cp1250", "cp1254", "cp1257")  # that a word is shown in


def hardly_western(begin: bytes) -> str | None:
    """Why bytes are hardly cp1252, with a word of theirs, and what it is in other encodings; None where they may be."""
    text = "".join(chr(byte) if byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else bytes([byte]).decode("cp1252") for byte in range(256))
    return _complaint(begin.decode("latin-1").translate({place: letter for place, letter in enumerate(text)}))


def _complaint(text: str) -> str | None:
    beyond = Counter(letter.lower() for letter in re.findall("[^\x00-\x7f]", text))
    total = beyond.total()
    odd = [found.start() for found in _ODD.finditer(text)]
    if odd and len(odd) >= LEAST_ODD * total and (len(odd) > 1 or total < 3):
        return _shown(text, odd[0])
    for one, other in (pair for group in STRANGERS for pair in product(*group)):
        are_there = min(beyond[one], beyond[other]) >= max(2, LEAST_STRANGE * total)
        # In one word: a file in two languages may have both letters, such as Italian's and Danish's.
        if are_there and (word := re.search(rf"{one}\w{{0,20}}{other}|{other}\w{{0,20}}{one}", text.lower())):
            return _shown(text, word.start())
    return None


def _shown(text: str, place: int) -> str:
    """The word around that place, and what it is in other encodings."""
    start = place - len(re.search(f"{_WORD}*$", text[max(0, place - 30) : place])[0])  # type: ignore[index]
    word = text[start : place + len(re.match(f"{_WORD}*", text[place : place + 30])[0])]  # type: ignore[index]
    raw = b"".join(letter.encode("cp1252") if not "\x80" <= letter <= "\x9f" else letter.encode("latin-1") for letter in word)
    readings = {encoding: raw.decode(encoding, "replace") for encoding in OTHERS}
    good = ", ".join(f"{reading} in {encoding}" for encoding, reading in readings.items() if reading.strip(".!?„“”").isalpha())
    visible = "".join(letter if letter.isprintable() else "?" for letter in word)
    return f'text with words like "{visible}", if it were in cp1252{f" ({good})" if good else ""}'


def utf_16_without_mark(begin: bytes) -> str | None:
    """utf-16-le or utf-16-be, where bytes are text in one of them and not in the other: each has lines, and no letter that there is not."""
    if 0 not in begin:
        return None
    able = [encoding for encoding in ("utf-16-le", "utf-16-be") if _is_text(begin[: len(begin) // 2 * 2], encoding)]
    return able[0] if len(able) == 1 else None


def _is_text(content: bytes, encoding: str) -> bool:
    """Whether bytes have lines in an encoding, and no letters that are not assigned; a pair of surrogates may be cut at the end."""
    try:
        text = content.decode(encoding) if content[-2:-1] else ""
    except UnicodeDecodeError as error:
        if error.start < len(content) - 2:
            return False
        text = content[: error.start].decode(encoding)
    kinds = {unicodedata.category(letter) for letter in {*text} - {"\t", "\n", "\r"}}
    return "\n" in text and not kinds & {"Cc", "Cn", "Co", "Cs"}
