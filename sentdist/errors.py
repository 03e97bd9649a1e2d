"""Errors shown to users, and the formatting of values, names and system errors in their messages."""

from __future__ import annotations

import difflib
import errno
import os
import re
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Self

from sentdist.text import without_secrets

# Characters. The longest intended message lists the names of all tasks (660).
LONGEST = {"where": 300, "found": 1_000, "expected": 600, "remedy": 600}
LONGEST_VALUE = 160  # characters of what a user wrote or a file holds
LONGEST_ADDRESS = 1_000  # characters; a longer one may be cut before its secrets are found

# Control characters, line separators, bidirectional controls, and lone surrogates, which no encoding can write.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def one_line(text: str, longest: int) -> str:
    """Return `text` on one line of at most `longest` characters: control characters escaped, secrets removed from addresses.

    The middle of a longer text is replaced by its size. Time does not depend on the size of the text.
    """
    if len(text) <= longest and len(shown := _escaped(text)) <= longest:
        return shown
    mark = f" … ({len(text):,} characters) … "
    ending = (longest - len(mark)) // 4
    return (
        _escaped(text[: longest + LONGEST_ADDRESS])[: longest - len(mark) - ending]
        + mark
        + _escaped(text[-longest - LONGEST_ADDRESS :])[-ending:]
    )


def _escaped(text: str) -> str:
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), without_secrets(text))


def brief(value: object) -> str:
    """Return the `repr` of a value in at most 160 characters; long lists and deep nesting are abbreviated."""
    return one_line(_BRIEF.repr(value), LONGEST_VALUE)


def listed(names: Sequence[str]) -> str:
    """Join names with commas: the first 40, each cut to 60 characters."""
    more = [f"and {len(names) - 40:,} more"] if len(names) > 40 else []
    return ", ".join([*(one_line(str(name), 60) for name in names[:40]), *more])


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: '1 query', '2,000 queries'. Give `plural` unless it is the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def typed(value: object) -> str:
    """Return the type of a value with its article: 'a str', 'an int'."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def duration(seconds: float) -> str:
    """Format seconds: '45 s', '3 min', '2.5 h'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def first_line(error: BaseException) -> str:
    """Return the first line of a library error's message, or its type if the message is empty."""
    message = str(error).strip()
    return one_line(message.splitlines()[0], LONGEST_VALUE) if message else type(error).__name__


def named(error: BaseException) -> str:
    """Return the type and the whole message of an error, without secrets."""
    return without_secrets(f"{type(error).__name__}: {error}")


class _Brief(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = LONGEST_VALUE
        self.maxlist = self.maxtuple = self.maxset = self.maxdict = 8
        self.maxlevel = 4

    def repr_int(self, value: int, level: int) -> str:
        """Python refuses to format integers of more than 4,300 digits."""
        return super().repr_int(value, level) if abs(value) < 1 << 512 else f"an integer of {value.bit_length():,} bits"


_BRIEF = _Brief()


class SentdistError(Exception):
    """An error that a user can act on: one line of bounded length, with its parts as attributes, also after pickling (by Ray).

    Args:
        where: the file, field, option or object concerned.
        found: what was found there.
        expected: what was expected; "" if `found` is one or more whole sentences.
        remedy: what to do.
    """

    def __init__(self, *, where: str, found: str, expected: str, remedy: str) -> None:
        self.where = one_line(where, LONGEST["where"])
        self.found = one_line(found, LONGEST["found"])
        self.expected = one_line(expected, LONGEST["expected"])
        self.remedy = one_line(remedy, LONGEST["remedy"])
        super().__init__(" ".join(part for part in (self._problem, self.remedy) if part))

    @property
    def _problem(self) -> str:
        if self.expected:
            return f"{self.where}: found {self.found}; expected {self.expected}{'' if self.expected.endswith(('.', '?')) else '.'}"
        return f"{self.where}: {self.found}{'' if self.found.endswith(('.', '?')) else '.'}"

    def with_context(self, *, where: str | None = None, remedy: str | None = None) -> Self:
        """Return a copy with another `where` or `remedy`, where a caller knows a better one."""
        return type(self)(where=where or self.where, found=self.found, expected=self.expected, remedy=remedy or self.remedy)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), dict(self.__dict__))


class RecipeError(SentdistError):
    """An invalid recipe, sweep or `--set`."""


class DataError(SentdistError):
    """A corpus or task file that is missing, empty or of the wrong shape."""


class EncoderError(SentdistError):
    """An encoder checkpoint that is missing or does not fit its tokenizer."""


class StoreError(SentdistError):
    """An artifact store that cannot be read or written."""


class ArtifactLost(StoreError):  # noqa: N818 - an event, after which the artifact is built again
    """A finished artifact that is damaged or missing; its stage counts as unfinished and is built again on request."""


class ResourceError(SentdistError):
    """A request that this machine or cluster cannot satisfy."""


class ServerError(SentdistError):
    """A local server that cannot be started, found or stopped."""


class TrainingDiverged(SentdistError):  # noqa: N818 - an event that ends a run, as in the design
    """A non-finite loss or gradient; raised before the optimizer step."""


class SweepStopped(SentdistError):  # noqa: N818 - as above
    """A user stopped a sweep; finished stages are kept."""


def _rebuild(kind: type[SentdistError], state: dict[str, str]) -> SentdistError:
    return kind(where=state["where"], found=state["found"], expected=state["expected"], remedy=state["remedy"])


LONGEST_NAME = 200  # characters; difflib's time grows with their number
ALIKE = 0.6  # difflib's similarity ratio, its default
ELSEWHERE = {  # other tools' name -> our names
    "gpu": ("cuda",), "lr": ("learning_rate",), "bs": ("batch_size",), "grid": ("sweep",), "dataset": ("corpus",), "data": ("corpus",),
    "model": ("encoder", "checkpoint"), "loss": ("objective",), "weight": ("terms",),
    "file": ("source",), "path": ("source", "file"),
}  # fmt: skip


def near_file(name: str, names: Iterable[str]) -> str | None:
    """Return the most likely intended file name: stems are compared, and the same suffix is preferred."""
    suffix, stems = PurePath(name).suffix, dict[str, str]()
    for known in sorted(names, key=lambda known: PurePath(known).suffix != suffix):
        stems.setdefault(PurePath(known).stem, known)
    closest = near(PurePath(name).stem, stems)
    return None if closest is None else stems[closest]


def near(name: str, names: Iterable[str], *, alike: float = ALIKE) -> str | None:
    """Return the name that was probably meant, or None; case and what follows 200 characters are ignored.

    In order: synonyms in other tools, similar spellings (difflib ratio of at least `alike`), anagrams, names that begin or end so.
    """
    if len(name) > LONGEST_NAME:
        return None
    shown = {known[:LONGEST_NAME].casefold(): known for known in reversed(list(names))}
    typed = name.casefold()
    ours = [] if typed in shown else [shown[one] for one in ELSEWHERE.get(typed, ()) if one in shown]
    close = [shown[one] for one in difflib.get_close_matches(typed, shown, n=1, cutoff=alike)]
    close += [known for small, known in shown.items() if len(name) > 2 and sorted(small) == sorted(typed)]
    around = [known for small, known in reversed(shown.items()) if len(name) > 2 and small.startswith(typed)]
    around += [known for small, known in reversed(shown.items()) if len(name) > 3 and small.endswith(f"_{typed}")]
    return next(iter([*ours, *close, *around]), None)


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "", *, alike: float = ALIKE) -> str:
    """Return the question 'Did you mean "NAME"?', or `otherwise` if no name is similar."""
    closest = near(name, names, alike=alike)
    return otherwise if closest is None else f'Did you mean "{closest}"?'


WORDS: dict[int | None, str] = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "an exceeded quota",
    errno.EROFS: "a read-only file system",
    errno.EIO: "a disk error",
    errno.ESTALE: "a network file system that is gone (stale handle)",
    errno.ETIMEDOUT: "a server that does not answer (timed out)",
    errno.EHOSTDOWN: "a server that is down",
    errno.EHOSTUNREACH: "a server that cannot be reached",
    errno.ENETUNREACH: "a server that cannot be reached",
    errno.ENETDOWN: "a network that is down",
    errno.ENOTCONN: "a file system whose server has ended",
    errno.ECONNABORTED: "a file system whose server has ended",
    errno.ENODEV: "a disk that is gone",
    errno.ENXIO: "a disk that is gone",
}
NO_RIGHT = (errno.EACCES, errno.EPERM)
RIGHTS = "Correct its rights, then run it again."
AGAIN = "Check the disk or the file server, then run it again: what is finished is kept."


def words_for(error: BaseException | None) -> str | None:
    """Return what an error of a disk or file server means, or None for any other error."""
    return WORDS.get(error.errno) if isinstance(error, OSError) else None


def os_error_of(error: Exception) -> OSError | None:
    """Return the system error: the error itself, or the errno in the message of a Rust library (safetensors)."""
    if isinstance(error, OSError):
        return error
    found = None if isinstance(error, SentdistError) else re.search(r"\(os error (\d+)\)", str(error))
    return None if found is None else OSError(int(found[1]), os.strerror(int(found[1])))


@contextmanager
def explain_disk_errors(where: str) -> Iterator[None]:
    """Turn errors of a failing disk or file server into a StoreError; `where` is used if the error names no file."""
    try:
        yield
    except OSError as error:
        words = words_for(error)
        if words is None:
            raise
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else where
        raise StoreError(where=name, found=words, expected="a disk or file server that answers", remedy=AGAIN) from error


HUB_ANSWERS_WITHIN_S = 20.0  # of questions before any work; the default waits for half a minute and more


@dataclass(frozen=True, kw_only=True)
class HubTrouble:
    """An error of the Hugging Face Hub, in the parts of a SentdistError."""

    found: str
    remedy: str
    has_answered: bool  # False if a later try may succeed


def hub_trouble(error: Exception, *, revision: str | None = None) -> HubTrouble:
    """Explain an error of huggingface_hub or of a library that calls it; `revision` is the one requested."""
    import huggingface_hub.errors as known  # half a second

    if isinstance(error, known.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # it was not in the cache either
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, known.RevisionNotFoundError):
        remedy = "Copy the commit from its page: Files, History."
        return HubTrouble(found=f'no revision "{revision}" on the hub', remedy=remedy, has_answered=True)
    if isinstance(error, known.HFValidationError | known.LocalTokenNotFoundError) or status in (401, 403, 404):
        found = f"no such repository on the hub, or no right to it ({type(error).__name__}: {first_line(error)})"
        return HubTrouble(found=found, remedy="Correct the name, or log in with `hf auth login`.", has_answered=True)
    found = f"no answer from the hub ({type(error).__name__}: {first_line(error)})"
    return HubTrouble(found=found, remedy="Check the network and HF_HUB_OFFLINE, and try again.", has_answered=False)
