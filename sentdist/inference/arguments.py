"""What a Python program gives: sentences, embeddings, places; checked before anything is loaded."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.cells import is_invisible, is_utf8
from sentdist.errors import DataError, brief, first_line, typed
from sentdist.learning.encoder.find_checkpoint import PACKAGED_ENCODERS
from sentdist.plan.recipe import Recipe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from sentdist.inference.ready_encoder import LoadedEncoder


def given_sentences(where: str, given: str | Iterable[str], *, one_will_do: bool = True) -> list[str]:
    """A list of sentences; a `str` is one of them, not a sequence of letters. Columns of NumPy, pandas, Arrow and Polars are lists, too.

    Raises:
        DataError: none, by its place one that is no `str`, has no visible character or half of a surrogate pair, which cannot be written;
            one `str` if that will not do.
    """
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping | Set) or hasattr(given, "columns"):  # these give their names
        remedy = "Give a column of it: table['text']." if hasattr(given, "columns") else "Give each as a str."
        if isinstance(given, Mapping | Set) and given:
            remedy = "Give them in an order, which embeddings keep: list(…)."
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
    """Two lists of one length, each of one sentence where that was given.

    Raises:
        DataError: as `given_sentences`; lists of different lengths, one sentence and a list.
    """
    heads, tails = given_sentences(f"{where}: first", first), given_sentences(f"{where}: second", second)
    if len(heads) != len(tails) or isinstance(first, str) != isinstance(second, str):
        raise DataError(
            where=where, found=f"{_counted(first, heads)} and {_counted(second, tails)}",
            expected="two sentences, or two lists of one length", remedy="To compare one sentence with many, use search.",
        )  # fmt: skip
    return heads, tails


def _counted(given: str | Iterable[str], sentences: Sequence[str]) -> str:
    """How much was given, for an error; a generator, of which `sentences` were made, is empty by now."""
    return "one sentence" if isinstance(given, str) else f"a list of {len(sentences)}"


def _no_sentence(where: str, given: object) -> DataError:
    """The error for what is no sentence, by what it is instead."""
    if isinstance(given, str) and is_invisible(given):
        found, expected, remedy = brief(given), "a sentence with at least one visible character", "Fill it in, or leave it out."
    elif isinstance(given, str):
        found, expected = "half of a surrogate pair", "text that UTF-8 can hold"
        remedy = "Decode it again, or drop it: sentence.encode(errors='replace').decode()."
    else:
        is_missing = given is None or type(given).__name__ == "NAType" or (isinstance(given, float) and math.isnan(given))
        found, expected = f"{brief(given)}, of type {type(given).__name__}", "a str"
        remedy = "Leave out what is missing: table['text'].dropna()." if is_missing else "Give each as a str."
    return DataError(where=where, found=found, expected=expected, remedy=remedy)


def given_names(where: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """Names; a `str` may have several, with commas between them, as on the command line.

    Raises:
        DataError: none, or something that is no `str`.
    """
    if isinstance(given, str):
        return tuple(name.strip() for name in given.split(","))
    is_list = isinstance(given, Iterable) and not isinstance(given, Mapping) and not hasattr(given, "columns")  # these give their names
    names = tuple(given) if is_list else ()
    wrong = [type(name).__name__ for name in (names if is_list else (given,)) if not isinstance(name, str)]
    if not names or wrong:
        found = f"a {wrong[0]}" if wrong else "an empty list"
        raise DataError(where=where, found=found, expected="a name or several", remedy="Give each as a str.")
    return names


def given_encoder(where: str, given: str | Path) -> str:
    """The name or folder of an encoder.

    Raises:
        DataError: another thing, such as a model of another library.
    """
    if not isinstance(given, str | Path):
        raise DataError(
            where=where, found=typed(given), expected="a sentdist.Encoder, or the name or folder of one",
            remedy="A SentenceTransformer is opened by its folder: model.save(folder).",
        )  # fmt: skip
    name, folder = str(given), Path(given).expanduser()
    is_folder = name and name not in PACKAGED_ENCODERS and folder.is_dir()
    return str(folder.absolute()) if is_folder else name  # found again when the process has gone to another folder


def given_loaded(where: str, given: LoadedEncoder) -> LoadedEncoder:
    """An encoder in memory.

    Raises:
        DataError: the name of one.
    """
    if isinstance(given, str | Path):
        raise DataError(
            where=where, found=typed(given), expected="an encoder in memory",
            remedy=f"Give sentdist.Encoder.load({str(given)!r}).",
        )  # fmt: skip
    return given


def given_name(where: str, sweep: str | Recipe | None, paper: str | None) -> str:
    """The name of a sweep, or of the paper that was given in its stead.

    Raises:
        DataError: both or neither; the path of a recipe, or another thing.
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
            remedy=f"Give sentdist.Recipe.load({str(sweep)!r})." if is_path else "Give one of them.",
        )  # fmt: skip
    return sweep


def given_flag(where: str, given: bool) -> bool:
    """True or False, of numpy's, too.

    Raises:
        DataError: another thing; "no" would be true.
    """
    if type(given).__name__ not in ("bool", "bool_"):
        raise DataError(where=where, found=brief(given), expected="True or False", remedy="Correct it.")
    return bool(given)


def given_count(where: str, given: int) -> int:
    """A whole number, of numpy's, too.

    Raises:
        DataError: another thing, or less than 1.
    """
    if isinstance(given, bool) or not isinstance(given, Integral) or given < 1:
        raise DataError(where=where, found=brief(given), expected="a whole number, 1 or more", remedy="Correct it.")
    return int(given)


def given_embeddings(where: str, given: ArrayLike, *, of: int) -> np.ndarray:
    """(S, D) numbers, one row for each of S sentences: an array, a tensor or lists.

    Raises:
        DataError: another shape, or what are no real numbers.
    """
    import numpy as np

    detach = getattr(given, "detach", None)  # of a tensor, which numpy takes neither with a gradient nor from a GPU nor in bfloat16
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


def given_store(store: str | Path | None) -> str | None:
    """The address of the store that is asked for, by the argument or the environment."""
    return str(store) if store is not None else os.environ.get("SENTDIST_STORE")


def given_data(data: str | Path | None) -> Path | None:
    """The data root that is asked for, by the argument or the environment."""
    named = data if data is not None else os.environ.get("SENTDIST_DATA")
    if not named or "://" not in str(named):
        return Path(named).expanduser() if named else None
    from sentdist.data.sources.mirror import data_folder

    return data_folder(named)
