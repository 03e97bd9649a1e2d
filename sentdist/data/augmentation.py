"""Other wordings of a sentence made without a model: words left out, words replaced by synonyms (SupMPN, Table A1)."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sentdist.data.nltk_folder import find_nltk, nltk_bytes
from sentdist.data.seeded_order import digest_u64, random_words
from sentdist.errors import DataError, first_line

if TYPE_CHECKING:
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

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
    """Return each sentence without `fraction` of its words: as many as fit, at least one, never all; a sentence of one word stays as it is.

    Words are what whitespace separates. SupMPN deletes 10 % with NLPAug, whose rule for the number this is.
    Equal sentences at different places lose different words. Source: Dehghan and Amasyali 2022, Appendix A.1 (RD).
    """
    _check(fraction, "delete_words")
    return [_without(sentence, place, fraction, seed) for place, sentence in enumerate(sentences)]


def replace_synonyms(sentences: Sequence[str], *, fraction: float = 0.2, seed: int = 0, folder: Path | None = None) -> list[str]:
    """Return each sentence with `fraction` of its words (as many as fit, at least one) replaced by synonyms out of WordNet.

    Replaced are words that WordNet knows in the form written, other than function words and numbers;
    a sentence with fewer of them has fewer replaced. A synonym is drawn from the other lemmas of the word's synsets,
    evenly over different lemmas (as NLPAug does: without regard to sense),
    takes the capital of the word it replaces and keeps its punctuation. SupMPN replaces 20 %.
    Source: Dehghan and Amasyali 2022, Appendix A.1 (SR).
    folder: that of NLTK's data sets; None: where NLTK looks itself. DataError when WordNet is not there.
    """
    _check(fraction, "replace_synonyms")
    synonyms = _Synonyms(folder)
    return [_reworded(sentence, place, fraction, seed, synonyms) for place, sentence in enumerate(sentences)]


def wordnet_revision(folder: Path | None = None) -> str:
    """A digest of WordNet's words and synsets, from which synonyms follow. DataError when WordNet is not there."""
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


def _reworded(sentence: str, place: int, fraction: float, seed: int, synonyms: _Synonyms) -> str:
    words = sentence.split()
    known = [number for number, word in enumerate(words) if synonyms.of(word.strip(PUNCTUATION).lower())]
    for choice in _some_places(len(known), min(_share(fraction, len(words)), len(known)), seed, f"replace {place}"):
        number = known[choice]
        core = words[number].strip(PUNCTUATION)
        others = synonyms.of(core.lower())
        synonym = others[digest_u64(seed, "synonym", place, number) % len(others)]
        if core[0].isupper():
            synonym = synonym[0].upper() + synonym[1:]
        words[number] = words[number].replace(core, synonym, 1)
    return " ".join(words) if known else sentence


class _Synonyms:
    """The other lemmas of a word's synsets, each word looked up once."""

    def __init__(self, folder: Path | None) -> None:
        self._wordnet = _wordnet(folder)
        self._known: dict[str, tuple[str, ...]] = {}

    def of(self, word: str) -> tuple[str, ...]:
        if word not in self._known:
            self._known[word] = self._look_up(word)
        return self._known[word]

    def _look_up(self, word: str) -> tuple[str, ...]:
        if not word.isalpha() or word in FUNCTION_WORDS:
            return ()
        lemmas = (name.replace("_", " ") for synset in self._wordnet.synsets(word) for name in synset.lemma_names())
        return tuple(dict.fromkeys(lemma for lemma in lemmas if lemma.lower() != word))


@cache
def _wordnet(folder: Path | None) -> WordNetCorpusReader:
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    place = find_nltk("corpora/wordnet", folder=folder)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The multilingual functions")  # English only is what is asked for
            return WordNetCorpusReader(place, None)
    except Exception as error:  # NLTK's parser raises its own
        raise DataError(
            where=str(place),
            found=f"a WordNet that cannot be read ({first_line(error)})",
            expected="WordNet in NLTK's form",
            remedy="Fetch it again with `python -m nltk.downloader wordnet`.",
        ) from error


def _some_places(count: int, num_chosen: int, seed: int, stream: str) -> list[int]:
    """`num_chosen` of the numbers 0 … count − 1, ascending, drawn without replacement."""
    chosen = np.argsort(random_words(count, seed=seed, stream=stream))[:num_chosen]
    return sorted(chosen.tolist())


def _share(fraction: float, num_words: int) -> int:
    return max(1, int(fraction * num_words))


def _check(fraction: float, where: str) -> None:
    if not 0 < fraction <= 1:
        raise DataError(
            where=f"{where}.fraction",
            found=str(fraction),
            expected="a share of the words above 0, at most 1",
            remedy="The paper takes 0.1 and 0.2.",
        )
