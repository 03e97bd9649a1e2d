"""The errors that a user can meet: each says where, what was found, what was expected and what to do, and survives a pickle."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from typing import Self

from sentdist.addresses import without_secrets

# Letters. The longest message that is long on purpose lists the names of all tasks (660).
LONGEST = {"where": 300, "found": 1_000, "expected": 600, "remedy": 600}
LONGEST_VALUE = 160  # letters of what a user wrote or a file holds
LONGEST_ADDRESS = 1_000  # letters; a longer one may be cut before its secrets are found

# What moves a terminal's cursor, breaks a line, turns the order of writing round, or cannot be written at all (a half of a surrogate pair).
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def one_line(text: str, longest: int) -> str:
    """`text` in at most `longest` letters on one line: its beginning and its end, control characters as escapes, addresses without
    secrets.

    What is cut out is replaced by the size of the text. Takes the same time for a text of any size.
    """
    if len(text) <= longest and len(shown := _escaped(text)) <= longest:
        return shown
    mark = f" … ({len(text):,} letters) … "
    ending = (longest - len(mark)) // 4
    return (
        _escaped(text[: longest + LONGEST_ADDRESS])[: longest - len(mark) - ending]
        + mark
        + _escaped(text[-longest - LONGEST_ADDRESS :])[-ending:]
    )


def _escaped(text: str) -> str:
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), without_secrets(text))


def brief(value: object) -> str:
    """A value as Python writes it, in at most 160 letters; a few items of a long list, a few levels of a deep one."""
    return one_line(_BRIEF.repr(value), LONGEST_VALUE)


def listed(names: Sequence[str]) -> str:
    """Names as a list in a sentence; the first 40, each cut to 60 letters."""
    more = [f"and {len(names) - 40:,} more"] if len(names) > 40 else []
    return ", ".join([*(one_line(str(name), 60) for name in names[:40]), *more])


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """'1 query', '2,000 queries': `plural` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def typed(value: object) -> str:
    """Of which type a value is, in words: a str, an int."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def duration(seconds: float) -> str:
    """Seconds for people: 45 s, 3 min, 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def first_line(error: BaseException) -> str:
    """The first line of what an error of a library says, or its name where it says nothing."""
    said = str(error).strip()
    return one_line(said.splitlines()[0], LONGEST_VALUE) if said else type(error).__name__


def named(error: BaseException) -> str:
    """`ValueError: what it says`, whole."""
    return without_secrets(f"{type(error).__name__}: {error}")


class _Brief(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = LONGEST_VALUE
        self.maxlist = self.maxtuple = self.maxset = self.maxdict = 8
        self.maxlevel = 4

    def repr_int(self, value: int, level: int) -> str:
        """Python refuses to write integers of more than 4,300 digits."""
        return super().repr_int(value, level) if abs(value) < 1 << 512 else f"an integer of {value.bit_length():,} bits"


_BRIEF = _Brief()


class SentdistError(Exception):
    """A mistake or mishap that a person can act on, in one line of bounded length.

    Parameters are kept as attributes, so that a caller across a process border (Ray pickles exceptions) can still read them.
    expected: "" where `found` is one or several whole sentences, which say it themselves.
    """

    def __init__(self, *, where: str, found: str, expected: str, remedy: str) -> None:
        self.where = one_line(where, LONGEST["where"])
        self.found = one_line(found, LONGEST["found"])
        self.expected = one_line(expected, LONGEST["expected"])
        self.remedy = one_line(remedy, LONGEST["remedy"])
        super().__init__(" ".join(part for part in (self._said, self.remedy) if part))

    @property
    def _said(self) -> str:
        if self.expected:
            return f"{self.where}: found {self.found}; expected {self.expected}{'' if self.expected.endswith(('.', '?')) else '.'}"
        return f"{self.where}: {self.found}{'' if self.found.endswith(('.', '?')) else '.'}"

    def with_context(self, *, where: str | None = None, remedy: str | None = None) -> Self:
        """The same error with a place or remedy that whoever passes it on knows better."""
        return type(self)(where=where or self.where, found=self.found, expected=self.expected, remedy=remedy or self.remedy)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), dict(self.__dict__))


class RecipeError(SentdistError):
    """A recipe, a sweep or a `--set` that cannot be understood."""


class DataError(SentdistError):
    """A corpus or task file that is missing, empty or of the wrong shape."""


class EncoderError(SentdistError):
    """An encoder checkpoint that is missing or does not fit its tokenizer."""


class StoreError(SentdistError):
    """An artifact store that cannot be read or written."""


class ArtifactLost(StoreError):  # noqa: N818 - an event, after which the artifact is built again
    """A finished artifact that is damaged or gone. Its stage counts as not finished, and is built again when it is asked for."""


class ResourceError(SentdistError):
    """A request that the cluster at hand can never satisfy."""


class ServerError(SentdistError):
    """A server of this machine that cannot be started, found or ended."""


class TrainingDiverged(SentdistError):  # noqa: N818 - an event that ends a run, as in the design
    """A loss or gradient that is not finite; raised before the optimizer is touched."""


class SweepStopped(SentdistError):  # noqa: N818 - as above
    """A person ended a sweep; what it had built is kept."""


def _rebuild(kind: type[SentdistError], state: dict[str, str]) -> SentdistError:
    return kind(where=state["where"], found=state["found"], expected=state["expected"], remedy=state["remedy"])
