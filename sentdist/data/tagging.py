"""Tag words with NLTK's or a user's tagger; count tags and words of a corpus as training targets, and read them memory-mapped."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sentdist.data.augmentation import FUNCTION_WORDS, find_nltk, nltk_bytes
from sentdist.data.corpus import checked_ids
from sentdist.errors import DataError, RecipeError, named
from sentdist.files import drop_remedy, read_array, read_json, reading

if TYPE_CHECKING:
    from nltk.data import PathPointer
    from nltk.tag.perceptron import PerceptronTagger


# Sentences to their (word, tag) pairs in order, with punctuation; the result for a sentence does not depend on the others.
Tagger = Callable[[Sequence[str]], Sequence[Sequence[tuple[str, str]]]]

NLTK_TAGGER = "nltk"
# Function words, and the tokens that NLTK's tokenizer makes of "can't", "won't" etc.
STOP_WORDS = FUNCTION_WORDS | {"n't", "'s", "'re", "'ve", "'ll", "'d", "'m", "ca", "wo", "gon", "na"}
TAGGER_DATA = (
    ("taggers/averaged_perceptron_tagger_eng", "averaged_perceptron_tagger_eng.weights.json"),
    ("taggers/averaged_perceptron_tagger_eng", "averaged_perceptron_tagger_eng.tagdict.json"),
    ("taggers/universal_tagset", "en-ptb.map"),
)


def load_tagger(name: str, *, nltk_data: Path | None = None) -> Tagger:
    """Return the tagger "nltk", or the function named by "module:function".

    nltk: words by NLTK's Treebank tokenizer, tags by its averaged perceptron, in the 12 tags of Petrov et al. 2012 (arXiv 1104.2086).

    Args:
        nltk_data: folder of NLTK's data sets; None: NLTK's usual places (NLTK_DATA).

    Raises:
        RecipeError: a name of neither form.
        DataError: missing data, module or function.
    """
    check_name(name)
    return _nltk_tagger(nltk_data) if name == NLTK_TAGGER else _named(name)


def check_name(name: str) -> None:
    """Raise RecipeError unless `name` is "nltk" or has the form "module:function"; import nothing."""
    module, colon, function = name.partition(":")
    if name != NLTK_TAGGER and not (colon and function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise RecipeError(
            where="tagger",
            found=f'"{name}"',
            expected=f'"{NLTK_TAGGER}" or "module:function"',
            remedy="Name a function that takes sentences and returns a list of (word, tag) for each.",
        )


def tagger_revision(name: str, *, nltk_data: Path | None = None) -> str:
    """Return what pins the tags of a tagger, or raise as `load_tagger`: NLTK's version and a digest of its data, or of the module."""
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
    """Yield the (word, tag) pairs of each sentence; raise DataError if the tagger `name` returns anything else."""
    found = tagger(sentences)
    if len(found) != len(sentences):
        raise _unusable(name, f"{len(found)} results for {len(sentences)} sentences", "one list per sentence")
    for sentence, pairs in zip(sentences, found, strict=True):
        if not all(isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(part, str) for part in pair) for pair in pairs):
            raise _unusable(name, f"{pairs!r:.80} for {sentence!r:.60}", "pairs of word and tag, both text")
        yield list(pairs)


def is_word(token: str) -> bool:
    """Whether a lower-cased token is neither punctuation nor an English stop-word."""
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
        remedy = f'Install it on every worker, or correct the name ("{NLTK_TAGGER}" needs none).'
        raise DataError(
            where=f"tagger {name}", found=named(error), expected="an importable module with that function", remedy=remedy
        ) from error
    if not callable(found):
        raise _unusable(name, f"a {type(found).__name__}", "a function")
    tagger: Tagger = found
    return tagger


def _unusable(name: str, found: str, expected: str) -> DataError:
    remedy = "It is called with a list of sentences and returns, for each, a list of (word, tag)."
    return DataError(where=f"tagger {name}", found=found, expected=expected, remedy=remedy)


POS, INDPTR, INDICES, VALUES = "pos.npy", "bow_indptr.npy", "bow_indices.npy", "bow_values.npy"
TAGS, VOCABULARY = "tags.json", "vocabulary.json"
EXPECTED = "targets of a corpus"


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    """Counts of tagged sentences.

    Args:
        num_tags, num_words: K and V.
        num_wordless: sentences without a word of the vocabulary.
        covered_fraction: share of the words (without stop-words and punctuation) that are in the vocabulary.
        max_tag_share: share of the most frequent tag.
    """

    num_sentences: int
    num_tags: int
    num_words: int
    num_wordless: int
    covered_fraction: float
    max_tag_share: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SentenceTargets:
    """The targets of S sentences: (S, K) float32 tag shares; words as entries (row, word, share) with ascending rows."""

    pos: np.ndarray
    bow_rows: np.ndarray
    bow_words: np.ndarray
    bow_shares: np.ndarray


def write_tags(file: IO[bytes], sentences: Sequence[str], *, tagger: Tagger, name: str) -> None:
    """Write the tags of all tokens and the lower-cased words (without stop-words and punctuation) of a part of a corpus, as Parquet."""
    tags, words = [], []
    for pairs in tagged(tagger, sentences, name=name):
        tags.append([tag for _, tag in pairs])
        words.append([word for token, _ in pairs if is_word(word := token.lower())])
    pq.write_table(pa.table({name: pa.array(rows, pa.list_(pa.string())) for name, rows in (("tags", tags), ("words", words))}), file)


def write_targets(folder: Path, parts: Sequence[Path], *, num_words: int) -> TargetFacts:
    """Merge the parts of a corpus, in order, into targets for the occurring tags and the `num_words` most frequent words.

    Words of equal frequency are sorted alphabetically, so that the result does not depend on the parts. Reads the parts twice, one at a
    time; memory holds one part and the counts of all words.

    Raises:
        DataError: no sentence has a word.
    """
    tag_totals, word_totals, num_sentences = Counter[str](), Counter[str](), 0
    for path in parts:
        part = pq.read_table(path)
        num_sentences += part.num_rows
        for totals, column in ((tag_totals, "tags"), (word_totals, "words")):
            totals.update({one["values"]: one["counts"] for one in pc.value_counts(pc.list_flatten(part[column])).to_pylist()})
    tags = sorted(tag_totals)
    vocabulary = sorted(word_totals, key=lambda word: (-word_totals[word], word))[:num_words]
    if not vocabulary:
        found = "no word but stop-words and punctuation in any sentence"
        remedy = "Check the corpus and the tagger."
        raise DataError(where="targets", found=found, expected="sentences of a language that the tagger knows", remedy=remedy)
    pos_SK = np.lib.format.open_memmap(folder / POS, mode="w+", dtype=np.float32, shape=(num_sentences, len(tags)))
    lengths, indices, values, first = [], [], [], 0
    for path in parts:
        part = pq.read_table(path)
        rows, numbers, shares = _shares(part["tags"], tags)
        pos_SK[first + rows, numbers] = shares
        rows, numbers, shares = _shares(part["words"], vocabulary)
        lengths.append(np.bincount(rows, minlength=part.num_rows))
        indices.append(numbers)
        values.append(shares)
        first += part.num_rows
    pos_SK.flush()
    lengths_S = np.concatenate(lengths)
    np.save(folder / INDPTR, np.concatenate([[0], np.cumsum(lengths_S)]))
    np.save(folder / INDICES, np.concatenate(indices))
    np.save(folder / VALUES, np.concatenate(values))
    (folder / TAGS).write_text(json.dumps(tags))
    (folder / VOCABULARY).write_text(json.dumps(vocabulary))
    return TargetFacts(
        num_sentences=num_sentences,
        num_tags=len(tags),
        num_words=len(vocabulary),
        num_wordless=int(np.count_nonzero(lengths_S == 0)),
        covered_fraction=sum(word_totals[word] for word in vocabulary) / sum(word_totals.values()),
        max_tag_share=max(tag_totals.values()) / sum(tag_totals.values()),
    )


def _shares(names: pa.ChunkedArray, known: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows, numbers, relative frequencies) of the known names, by row and number; the frequencies of a row sum to 1."""
    numbers = pc.fill_null(pc.index_in(pc.list_flatten(names), value_set=pa.array(known, pa.string())), -1).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(names)), pc.list_value_length(names).to_numpy())
    entries, counts = np.unique(rows[numbers >= 0] * len(known) + numbers[numbers >= 0], return_counts=True)
    rows, numbers = entries // len(known), entries % len(known)
    totals = np.bincount(rows, weights=counts, minlength=len(names))
    return rows, numbers.astype(np.int32), (counts / totals[rows]).astype(np.float32)


class FileTargets:
    """The targets of a corpus, memory-mapped: workers on one host share its pages."""

    def __init__(self, folder: Path) -> None:
        """Map the files of `folder`; raise DataError if one is absent or unreadable."""
        self.folder = folder
        self.tags, self.vocabulary = (tuple(map(str, cast(list[str], read_json(folder / name)))) for name in (TAGS, VOCABULARY))
        remedy = drop_remedy(folder)
        arrays = [read_array(folder / name, expected=EXPECTED, remedy=remedy, mapped=True) for name in (POS, INDPTR, INDICES, VALUES)]
        self._pos, self._indptr, self._indices, self._values = arrays

    @property
    def num_tags(self) -> int:
        return len(self.tags)

    @property
    def num_words(self) -> int:
        return len(self.vocabulary)

    @property
    def num_sentences(self) -> int:
        return len(self._pos)

    def rows(self, sentence_ids: np.ndarray) -> SentenceTargets:
        """Return the targets of sentence ids of any shape, flattened; raise DataError for an id outside the corpus."""
        remedy = "Tag the corpus that the training uses: targets belong to one corpus."
        ids = checked_ids(sentence_ids, self.num_sentences, where=str(self.folder), remedy=remedy)
        starts, sizes = self._indptr[ids], self._indptr[ids + 1] - self._indptr[ids]
        rows = np.repeat(np.arange(len(ids)), sizes)
        places = np.arange(len(rows)) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
        return SentenceTargets(
            pos=np.asarray(self._pos[ids]),
            bow_rows=rows,
            bow_words=np.asarray(self._indices[places]),
            bow_shares=np.asarray(self._values[places]),
        )
