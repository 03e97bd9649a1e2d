"""Augment sentences without a model: delete words or replace them by synonyms (SupMPN, Table A1)."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sentdist.data import mirror
from sentdist.data.sampler import digest_u64, random_words
from sentdist.errors import DataError
from sentdist.files import reading

if TYPE_CHECKING:
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    from nltk.data import PathPointer


# NLTK takes 1.6 s to import, hence the imports inside functions.


def nltk_folder(data_root: Path | None) -> Path | None:
    """Return `nltk_data` below the data root if it exists; else None: NLTK then looks in NLTK_DATA and its usual places."""
    if data_root is not None:
        mirror.copy_into_mirror("nltk_data", data_root)
    folder = None if data_root is None else data_root / "nltk_data"
    return folder if folder is not None and folder.is_dir() else None


def nltk_bytes(place: PathPointer, file: str) -> bytes:
    """Return the content of a file of a data set; raise DataError if it cannot be read."""
    remedy = "Fetch the data set again with nltk.downloader."
    with reading(None, where=f"{place}/{file}", expected="a file of NLTK's", remedy=remedy), place.join(file).open() as stream:
        content: bytes = stream.read()
    return content


def find_nltk(name: str, *, folder: Path | None = None) -> PathPointer:
    """Return the data set `name`, such as "corpora/wordnet", as a folder or inside its zip; raise DataError if it is absent."""
    import nltk.data

    if folder is not None and str(folder) not in nltk.data.path:
        nltk.data.path.insert(0, str(folder))  # NLTK opens files below these paths only
    package = name.split("/")[-1]
    for place in (name, f"{name}.zip/{package}/"):
        try:
            return nltk.data.find(place, paths=None if folder is None else [str(folder)])
        except LookupError:
            continue
    found = f"nothing in {folder or ', '.join(nltk.data.path)}"
    remedy = f"Get it with `python -m nltk.downloader {package}`, or put it under nltk_data in the data root (or NLTK_DATA)."
    raise DataError(where=f"nltk {name}", found=found, expected=f"NLTK's data set {package}", remedy=remedy)


PUNCTUATION = ".,;:!?\"'()[]"
# As NLPAug's: words that carry a sentence's grammar are not replaced.
_GRAMMAR = (
    "a an the this that these those i you he she it we they me him her us them my your his its our their and or but nor so yet if than "
    "as of at by for with about against between into through during before after above below to from up down in out on off over under "
    "again then once here there when where why how all any both each few more most other some such no not only own same too very can "
    "will just should now am is are was were be been being have has had having do does did doing would could may might must who whom "
    "which what while because until "
)
FUNCTION_WORDS = frozenset(_GRAMMAR.split())


def delete_words(sentences: Sequence[str], *, fraction: float = 0.1, seed: int = 0) -> list[str]:
    """Return each sentence without `fraction` of its words, rounded down, at least one, never all.

    Words are separated by whitespace; equal sentences at different places lose different words. SupMPN deletes 10 % with NLPAug, whose
    rounding this is. Source: Dehghan and Amasyali 2022, Appendix A.1 (RD).
    """
    return [_without(sentence, place, fraction, seed) for place, sentence in enumerate(sentences)]


def replace_synonyms(sentences: Sequence[str], *, fraction: float = 0.2, seed: int = 0, folder: Path | None = None) -> list[str]:
    """Return each sentence with `fraction` of its words (rounded down, at least one) replaced by synonyms from WordNet.

    Only words that WordNet knows in the written form are replaced, no function words or numbers; a sentence may have fewer. A synonym is
    drawn uniformly from the distinct other lemmas of the word's synsets (regardless of sense, as in NLPAug), with the word's capital and
    punctuation. SupMPN replaces 20 %. Source: Dehghan and Amasyali 2022, Appendix A.1 (SR).

    Args:
        folder: of NLTK's data sets; None: NLTK's usual places.

    Raises:
        DataError: WordNet is absent.
    """
    _wordnet(folder)
    return [_reworded(sentence, place, fraction, seed, folder) for place, sentence in enumerate(sentences)]


def wordnet_revision(folder: Path | None = None) -> str:
    """Return a digest of WordNet's words and synsets, which determine synonyms; raise DataError without WordNet."""
    place = find_nltk("corpora/wordnet", folder=folder)
    digest = hashlib.sha256()
    for part in ("noun", "verb", "adj", "adv"):
        for name in (f"index.{part}", f"data.{part}", f"{part}.exc"):
            content = nltk_bytes(place, name)
            digest.update(f"{name}:{len(content)}:".encode())
            digest.update(content)
    return f"sha256:{digest.hexdigest()[:16]}"


def _without(sentence: str, place: int, fraction: float, seed: int) -> str:
    words = sentence.split()
    if len(words) < 2:
        return sentence
    dropped = set(_some_places(len(words), min(_share(fraction, len(words)), len(words) - 1), seed, f"delete {place}"))
    return " ".join(word for number, word in enumerate(words) if number not in dropped)


def _reworded(sentence: str, place: int, fraction: float, seed: int, folder: Path | None) -> str:
    words = sentence.split()
    known = [number for number, word in enumerate(words) if _synonyms(word.strip(PUNCTUATION).lower(), folder)]
    for choice in _some_places(len(known), min(_share(fraction, len(words)), len(known)), seed, f"replace {place}"):
        number = known[choice]
        core = words[number].strip(PUNCTUATION)
        others = _synonyms(core.lower(), folder)
        synonym = others[digest_u64(seed, "synonym", place, number) % len(others)]
        if core[0].isupper():
            synonym = synonym[0].upper() + synonym[1:]
        words[number] = words[number].replace(core, synonym, 1)
    return " ".join(words) if known else sentence


@cache
def _synonyms(word: str, folder: Path | None) -> tuple[str, ...]:
    """The other lemmas of a word's synsets."""
    if not word.isalpha() or word in FUNCTION_WORDS:
        return ()
    lemmas = (name.replace("_", " ") for synset in _wordnet(folder).synsets(word) for name in synset.lemma_names())
    return tuple(dict.fromkeys(lemma for lemma in lemmas if lemma.lower() != word))


@cache
def _wordnet(folder: Path | None) -> WordNetCorpusReader:
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    place = find_nltk("corpora/wordnet", folder=folder)
    with (
        reading(None, where=str(place), expected="WordNet in NLTK's format", remedy="Fetch it again with nltk.downloader."),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="The multilingual functions")  # only English is used
        return WordNetCorpusReader(place, None)


def _some_places(count: int, num_chosen: int, seed: int, stream: str) -> list[int]:
    """`num_chosen` of the numbers 0 … count − 1, ascending, drawn without replacement."""
    chosen = np.argsort(random_words(count, seed=seed, stream=stream))[:num_chosen]
    return sorted(chosen.tolist())


def _share(fraction: float, num_words: int) -> int:
    return max(1, int(fraction * num_words))
