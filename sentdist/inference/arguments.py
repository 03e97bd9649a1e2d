"""Validate arguments of the Python API before anything is loaded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.cells import is_invisible, is_utf8
from sentdist.errors import DataError, brief, first_line, typed
from sentdist.learning.encoder.find_checkpoint import PACKAGED_ENCODERS
from sentdist.recipe.recipe import Recipe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike


def given_sentences(where: str, given: str | Iterable[str], *, one_will_do: bool = True) -> list[str]:
    """Return sentences as a list; a `str` is one sentence. Columns of NumPy, pandas, Arrow and Polars are accepted.

    Raises:
        DataError: no sentences, or one (named by its index) that is no `str`, has no visible character or a lone surrogate; a single `str`
            unless `one_will_do`.
    """
    if (
        not isinstance(given, Iterable) or isinstance(given, bytes | Mapping | Set) or hasattr(given, "columns")
    ):  # tables iterate over names
        remedy = "Give a column of it: table['text']." if hasattr(given, "columns") else "Give each as a str."
        if isinstance(given, Mapping | Set) and given:
            remedy = "Give an ordered list: list(…)."
        raise DataError(where=where, found=typed(given), expected="a list of sentences", remedy=remedy)
    shape = (1,) if isinstance(given, str) else getattr(given, "shape", (1,))  # one of numpy's strings has a shape, too
    if len(shape) != 1:
        raise DataError(where=where, found=f"an array of shape {shape}", expected="a list of sentences", remedy="Give one dimension.")
    column = given.to_pylist() if hasattr(given, "to_pylist") else given  # Arrow's items are no str
    sentences = [column] if isinstance(column, str) else list(column)
    if not sentences or (isinstance(given, str) and not one_will_do):
        raise DataError(
            where=where, found=_counted(given, sentences), expected="a list of sentences",
            remedy="Give at least one, each a str.",
        )  # fmt: skip
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str) or is_invisible(sentence) or not is_utf8(sentence):
            raise _no_sentence(where if isinstance(given, str) else f"{where}[{number}]", sentence)
    return sentences


def given_pairs(where: str, first: str | Iterable[str], second: str | Iterable[str]) -> tuple[list[str], list[str]]:
    """Return two lists of equal length; a `str` is a list of one sentence.

    Raises:
        DataError: as `given_sentences`; lists of different lengths, or a sentence and a list.
    """
    heads, tails = given_sentences(f"{where}: first", first), given_sentences(f"{where}: second", second)
    if len(heads) != len(tails) or isinstance(first, str) != isinstance(second, str):
        raise DataError(
            where=where, found=f"{_counted(first, heads)} and {_counted(second, tails)}",
            expected="two sentences, or two lists of equal length", remedy="To compare one sentence with many, use search.",
        )  # fmt: skip
    return heads, tails


def _counted(given: str | Iterable[str], sentences: Sequence[str]) -> str:
    """The number of sentences, for an error; `given` may be an exhausted generator."""
    return "one sentence" if isinstance(given, str) else f"a list of {len(sentences)}"


def _no_sentence(where: str, given: object) -> DataError:
    """The error for a value that is no sentence."""
    if isinstance(given, str) and is_invisible(given):
        found, expected, remedy = brief(given), "a sentence with at least one visible character", "Fill it in, or leave it out."
    elif isinstance(given, str):
        found, expected = "a lone surrogate", "text that UTF-8 can encode"
        remedy = "Decode it again, or drop it: sentence.encode(errors='replace').decode()."
    else:
        is_missing = given is None or type(given).__name__ == "NAType" or (isinstance(given, float) and math.isnan(given))
        found, expected = f"{brief(given)}, of type {type(given).__name__}", "a str"
        remedy = "Leave out missing values: table['text'].dropna()." if is_missing else "Give each as a str."
    return DataError(where=where, found=found, expected=expected, remedy=remedy)


def given_names(where: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple; a `str` may hold several, separated by commas, as on the command line.

    Raises:
        DataError: no names, or one that is no `str`.
    """
    if isinstance(given, str):
        return tuple(name.strip() for name in given.split(","))
    is_list = isinstance(given, Iterable) and not isinstance(given, Mapping) and not hasattr(given, "columns")  # tables iterate over names
    names = tuple(given) if is_list else ()
    wrong = [type(name).__name__ for name in (names if is_list else (given,)) if not isinstance(name, str)]
    if not names or wrong:
        found = f"a {wrong[0]}" if wrong else "an empty list"
        raise DataError(where=where, found=found, expected="one or more names", remedy="Give each as a str.")
    return names


def given_encoder(where: str, given: str | Path) -> str:
    """Return the name of an encoder as it is, with a folder as an absolute path.

    Raises:
        DataError: neither, such as a model of another library.
    """
    if not isinstance(given, str | Path):
        raise DataError(
            where=where, found=typed(given), expected="a sentdist.Encoder, or the name or folder of one",
            remedy="Save a SentenceTransformer and give its folder: model.save(folder).",
        )  # fmt: skip
    name, mark, settings = str(given).partition("?")
    folder = Path(name).expanduser()
    is_folder = name and name not in PACKAGED_ENCODERS and folder.is_dir()
    return f"{folder.absolute() if is_folder else name}{mark}{settings}"  # absolute: the working directory may change


def given_name(where: str, sweep: str | Recipe | None, paper: str | None) -> str:
    """Return the name of the sweep or of the paper.

    Raises:
        DataError: both or neither; a path, or another type.
    """
    if (sweep is None) == (paper is None):
        found = "neither" if sweep is None else "both"
        raise DataError(where=where, found=found, expected="a sweep, or a paper", remedy="Name one of the two.")
    if paper is not None:
        return paper
    if isinstance(sweep, Recipe):
        return sweep.name
    is_path = isinstance(sweep, Path) or (isinstance(sweep, str) and sweep.endswith((".yaml", ".yml")))
    if is_path or not isinstance(sweep, str):
        raise DataError(
            where=where, found="a path" if is_path else typed(sweep), expected="a Recipe, or its name",
            remedy=f"Give sentdist.Recipe.load({str(sweep)!r})." if is_path else "Give one of the two.",
        )  # fmt: skip
    return sweep


def given_flag(where: str, given: bool) -> bool:
    """Return a bool, also from NumPy's.

    Raises:
        DataError: another type; "no" would be true.
    """
    if type(given).__name__ not in ("bool", "bool_"):
        raise DataError(where=where, found=brief(given), expected="True or False", remedy="Correct it.")
    return bool(given)


def given_count(where: str, given: int) -> int:
    """Return a positive integer, also from NumPy's.

    Raises:
        DataError: another type, or less than 1.
    """
    if isinstance(given, bool) or not isinstance(given, Integral) or given < 1:
        raise DataError(where=where, found=brief(given), expected="a whole number, 1 or more", remedy="Correct it.")
    return int(given)


def given_embeddings(where: str, given: ArrayLike, *, of: int) -> np.ndarray:
    """Return an (S, D) array from an array, a tensor or lists, with S = `of`.

    Raises:
        DataError: another shape, or values that are not real numbers.
    """
    import numpy as np

    detach = getattr(given, "detach", None)  # of a tensor, which NumPy rejects with a gradient, on a GPU or in bfloat16
    if detach is not None:
        tensor = detach().cpu()
        given = tensor.float() if "bfloat16" in str(tensor.dtype) else tensor
    try:
        embeddings_SD = np.asarray(given)
        if embeddings_SD.dtype == object:
            embeddings_SD = embeddings_SD.astype(np.float64)
        found = f"an array of shape {embeddings_SD.shape}"
    except (TypeError, ValueError) as error:
        embeddings_SD, found = np.empty(0), first_line(error)
    is_table = embeddings_SD.ndim == 2 and len(embeddings_SD) == of
    if not is_table or embeddings_SD.dtype.kind not in "fiu":
        raise DataError(
            where=where, found=f"an array of {embeddings_SD.dtype}" if is_table else found,
            expected=f"({of}, width), a row of numbers for each sentence of the corpus", remedy="Encode the corpus again.",
        )  # fmt: skip
    return embeddings_SD
