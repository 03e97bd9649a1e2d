"""Which words a sentence has, with the part of speech of each: NLTK's tagger, or one that the user names."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.augmentation import FUNCTION_WORDS
from sentdist.data.nltk_folder import find_nltk, nltk_bytes
from sentdist.errors import DataError, RecipeError, named
from sentdist.reading import reading

if TYPE_CHECKING:
    from nltk.data import PathPointer
    from nltk.tag.perceptron import PerceptronTagger

# Sentences to their words in order, each with its tag, punctuation included; the same words and tags for a sentence wherever it stands.
Tagger = Callable[[Sequence[str]], Sequence[Sequence[tuple[str, str]]]]

NLTK_TAGGER = "nltk"
# Words that carry grammar, and what NLTK's tokenizer makes of "can't", "won't" and the like.
STOP_WORDS = FUNCTION_WORDS | {"n't", "'s", "'re", "'ve", "'ll", "'d", "'m", "ca", "wo", "gon", "na"}
TAGGER_DATA = (
    ("taggers/averaged_perceptron_tagger_eng", "averaged_perceptron_tagger_eng.weights.json"),
    ("taggers/averaged_perceptron_tagger_eng", "averaged_perceptron_tagger_eng.tagdict.json"),
    ("taggers/universal_tagset", "en-ptb.map"),
)


def load_tagger(name: str, *, nltk_data: Path | None = None) -> Tagger:
    """The tagger called "nltk", or the function that "module:function" names.

    nltk: words by NLTK's Treebank tokenizer, tags by its averaged perceptron, in the 12 tags of Petrov et al. 2012 (arXiv 1104.2086).
    nltk_data: a folder of NLTK's data sets; None: where NLTK looks itself (NLTK_DATA). RecipeError for a name of neither form;
    DataError for data, a module or a function that is not there.
    """
    check_name(name)
    return _nltk_tagger(nltk_data) if name == NLTK_TAGGER else _named(name)


def check_name(name: str) -> None:
    """RecipeError unless `name` is "nltk" or has the form "module:function"; imports nothing."""
    module, colon, function = name.partition(":")
    if name != NLTK_TAGGER and not (colon and function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise RecipeError(
            where="tagger",
            found=f'"{name}"',
            expected=f'"{NLTK_TAGGER}" or "module:function"',
            remedy="Name a function that takes sentences and gives a list of (word, tag) for each.",
        )


def tagger_revision(name: str, *, nltk_data: Path | None = None) -> str:
    """What pins the tags that a tagger gives: NLTK's version and the content of its data, or the source of the module.

    Finds the tagger without loading it; raises what `load_tagger` raises for one that is not there.
    """
    check_name(name)
    digest = hashlib.sha256()
    if name == NLTK_TAGGER:
        for data_set, file in TAGGER_DATA:
            digest.update(_text(find_nltk(data_set, folder=nltk_data), file).encode())
        return f"nltk-{importlib.metadata.version('nltk')}:{digest.hexdigest()[:16]}"
    _named(name)
    source = importlib.util.find_spec(name.partition(":")[0])
    assert source is not None, "it was just imported"
    if source.origin is not None and Path(source.origin).is_file():
        digest.update(Path(source.origin).read_bytes())
    return f"sha256:{digest.hexdigest()[:16]}"


def tagged(tagger: Tagger, sentences: Sequence[str], *, name: str) -> Iterator[list[tuple[str, str]]]:
    """The (word, tag) pairs of each sentence, one by one. DataError when the tagger `name` gives anything else."""
    found = tagger(sentences)
    if len(found) != len(sentences):
        raise _unusable(name, f"{len(found)} results for {len(sentences)} sentences", "one list a sentence")
    for sentence, pairs in zip(sentences, found, strict=True):
        if not all(isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(part, str) for part in pair) for pair in pairs):
            raise _unusable(name, f"{pairs!r:.80} for {sentence!r:.60}", "pairs of word and tag, both text")
        yield list(pairs)


def is_word(token: str) -> bool:
    """Whether a lower-cased token says what a sentence is about: neither punctuation nor an English stop-word."""
    return token not in STOP_WORDS and any(letter.isalnum() for letter in token)


def _nltk_tagger(nltk_data: Path | None) -> Tagger:
    from nltk.tag.perceptron import PerceptronTagger
    from nltk.tokenize.destructive import NLTKWordTokenizer

    place = find_nltk("taggers/averaged_perceptron_tagger_eng", folder=nltk_data)
    with reading(None, where=str(place), expected="NLTK's tagger", remedy="Fetch it again with nltk.downloader."):
        perceptron: PerceptronTagger = PerceptronTagger(loc=place)
    lines = _text(find_nltk("taggers/universal_tagset", folder=nltk_data), "en-ptb.map").splitlines()
    universal = dict(line.split("\t") for line in lines if line.strip())
    tokenize = NLTKWordTokenizer().tokenize

    def tag(sentences: Sequence[str]) -> list[list[tuple[str, str]]]:
        return [[(word, universal.get(fine, "X")) for word, fine in perceptron.tag(tokenize(sentence))] for sentence in sentences]

    return tag


def _text(place: PathPointer, file: str) -> str:
    with reading(None, where=f"{place}/{file}", expected="text in UTF-8"):
        return nltk_bytes(place, file).decode()


def _named(name: str) -> Tagger:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise DataError(
            where=f"tagger {name}",
            found=named(error),
            expected="a module that can be imported, with that function",
            remedy=f'Install it on every worker, or correct the name ("{NLTK_TAGGER}" needs none).',
        ) from error
    if not callable(found):
        raise _unusable(name, f"a {type(found).__name__}", "a function")
    tagger: Tagger = found
    return tagger


def _unusable(name: str, found: str, expected: str) -> DataError:
    return DataError(
        where=f"tagger {name}",
        found=found,
        expected=expected,
        remedy="It is called with a list of sentences and returns, for each, a list of (word, tag).",
    )
