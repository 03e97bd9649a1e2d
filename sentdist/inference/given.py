"""What a Python program gives: sentences, embeddings, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.cells import is_utf8
from sentdist.errors import DataError, brief

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike


def given_sentences(where: str, given: str | Iterable[str], *, one_will_do: bool = True) -> list[str]:
    """A list of sentences; a `str` is one of them, not a sequence of letters.

    Raises:
        DataError: none, something that is no `str`, half of a surrogate pair, which cannot be written; one `str` if that will not do.
    """
    if not isinstance(given, Iterable) or isinstance(given, Mapping | Set) or hasattr(given, "columns"):  # these give their names
        remedy = "Give a column of it: table['text']." if hasattr(given, "columns") else "Give each as a str."
        raise DataError(where=where, found=f"a {type(given).__name__}", expected="a list of sentences", remedy=remedy)
    sentences = [given] if isinstance(given, str) else list(given)
    wrong = next((type(sentence).__name__ for sentence in sentences if not isinstance(sentence, str)), None)
    if not sentences or wrong or (isinstance(given, str) and not one_will_do):
        found = f"a {wrong} among them" if wrong else counted_of(given)
        raise DataError(where=where, found=found, expected="a list of sentences", remedy="Give at least one, each a str.")
    for number, sentence in enumerate(sentences):
        if not is_utf8(sentence):
            raise DataError(
                where=f"{where}: sentence {number}", found="half of a surrogate pair", expected="text that UTF-8 can hold",
                remedy="Decode it again, or drop it: sentence.encode(errors='replace').decode().",
            )  # fmt: skip
    return sentences


def given_names(where: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """Names; a `str` may have several, with commas between them, as on the command line.

    Raises:
        DataError: none, or something that is no `str`.
    """
    names = (
        tuple(name.strip() for name in given.split(","))
        if isinstance(given, str)
        else tuple(given)
        if isinstance(given, Iterable)
        else (given,)
    )
    wrong = next((type(name).__name__ for name in names if not isinstance(name, str)), None)
    if not names or wrong:
        raise DataError(
            where=where, found=f"a {wrong}" if wrong else "an empty list", expected="a name or several", remedy="Give each as a str."
        )
    return names


def given_encoder(where: str, given: str | Path) -> str:
    """The name or folder of an encoder.

    Raises:
        DataError: another thing, such as a model of another library.
    """
    if not isinstance(given, str | Path):
        raise DataError(
            where=where, found=f"a {type(given).__name__}", expected="a sentdist.Encoder, or the name or folder of one",
            remedy="A SentenceTransformer is opened by its folder: model.save(folder).",
        )  # fmt: skip
    return str(given)


def given_count(where: str, given: int) -> int:
    """A whole number, of numpy's, too.

    Raises:
        DataError: another thing, or less than 1.
    """
    if isinstance(given, bool) or not isinstance(given, Integral) or given < 1:
        raise DataError(where=where, found=brief(given), expected="a whole number, 1 or more", remedy="Correct it.")
    return int(given)


def counted_of(given: str | Iterable[str]) -> str:
    """How much was given, for an error."""
    return "one sentence" if isinstance(given, str) else f"a list of {len(list(given))}"


def given_embeddings(where: str, given: ArrayLike, *, of: int) -> np.ndarray:
    """(S, D) numbers, one row for each of S sentences: an array, a tensor or lists.

    Raises:
        DataError: another shape.
    """
    import numpy as np

    embeddings_SD = np.asarray(given)
    if embeddings_SD.ndim != 2 or len(embeddings_SD) != of:
        raise DataError(
            where=where, found=f"an array of shape {embeddings_SD.shape}", expected=f"({of}, width), a row for each sentence of the corpus",
            remedy="Encode the corpus again.",
        )  # fmt: skip
    return embeddings_SD
