"""What a person should know of texts that are read as they stand: letters that were lost before, and HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sentdist.errors import brief, counted

_MARKS = "\xa0«»‘’“”‚„…•–—‹›"  # may follow a word in capitals that ends in Ã, such as AMANHÃ…
_SECOND = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"  # what cp1252 makes of the second byte of a letter in UTF-8
_CAPITAL = "A-ZÀ-ÖØ-Þ"
SPOILT = re.compile(
    f"(?<![{_CAPITAL}])[ÃÂ][{_SECOND}]|(?<=[{_CAPITAL}])[ÃÂ](?:[{_MARKS}](?=\\w)|(?![{_MARKS}])[{_SECOND}])|â€[™œ\x9d“”¦˜]|\ufffd"
)
_TAGS = "a|b|blockquote|br|code|div|em|h[1-6]|hr|i|img|li|ol|p|pre|small|span|strong|sub|sup|table|tbody|td|th|thead|tr|u|ul"
HTML = re.compile(rf"</?(?:{_TAGS})(?:\s[^<>]*)?/?>|&(?:[a-z]{{2,8}}|#\d{{1,6}}|#x[0-9a-f]{{1,5}});", re.IGNORECASE)
LEAST_HTML = 0.01  # of the texts, in which it is no accident; so many are three at least


def remarks(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Sentences on the texts of all rows."""
    texts = [text for row in rows for text in row]
    spoilt = [(text, match.start()) for text in texts if (match := SPOILT.search(text))]
    if spoilt:
        text, place = spoilt[0]
        word = text[max(0, place - 20) : place].split(" ")[-1] + text[place : place + 20].split(" ")[0]
        like = f"{counted(len(spoilt), 'text')} with letters like {brief(word)}"
        yield f"{like}, spoilt before they came here: export them again as UTF-8."
    marked = [(text, match) for text in texts if ("<" in text or "&" in text) and (match := HTML.search(text))]
    if len(marked) >= max(3, LEAST_HTML * len(texts)):
        text, match = marked[0]
        around = text[max(0, match.start() - 20) : match.end() + 20]
        yield (
            f"{counted(len(marked), 'text')} with HTML, such as {brief(match[0])} in {brief(around)}: it is read as it stands. "
            "Take it out, unless what you will encode has it, too."
        )
