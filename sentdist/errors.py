"""The errors that a user can meet: each says where, what was found, what was expected and what to do, and survives a pickle."""

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


LONGEST_NAME = 200  # letters; difflib takes time for every letter of what it compares
ALIKE = 0.6  # share of the letters, difflib's own default
ELSEWHERE = {  # what others call a thing -> what it is called here, where it is among the names that there are
    "gpu": ("cuda",), "lr": ("learning_rate",), "bs": ("batch_size",), "grid": ("sweep",), "dataset": ("corpus",), "data": ("corpus",),
    "model": ("encoder", "checkpoint"), "loss": ("objective",), "weight": ("terms",),
    "file": ("source",), "path": ("source", "file"),
}  # fmt: skip


def near(name: str, names: Iterable[str], *, alike: float = ALIKE) -> str | None:
    """The one of `names` that was probably meant: our word for it, one spelt alike, or beginning or ending so; None where there is none."""
    return next(iter(similar_names(name, names, most=1, alike=alike)), None)


def near_file(name: str, names: Iterable[str]) -> str | None:
    """`near` for names of files: what stands before the suffix is compared; of equal ones that with the same suffix."""
    suffix, stems = PurePath(name).suffix, dict[str, str]()
    for known in sorted(names, key=lambda known: PurePath(known).suffix != suffix):
        stems.setdefault(PurePath(known).stem, known)
    closest = near(PurePath(name).stem, stems)
    return None if closest is None else stems[closest]


def similar_names(name: str, names: Iterable[str], *, most: int, alike: float = ALIKE) -> list[str]:
    """Up to `most` of the names that may have been meant, the likeliest first: what others call so, what is spelt alike or has the very
    letters in another order, what begins so, what ends so. No more than the first 200 letters of a name count, large ones as small ones."""
    if len(name) > LONGEST_NAME:
        return []
    shown = {known[:LONGEST_NAME].casefold(): known for known in reversed(list(names))}
    typed = name.casefold()
    around = [known for small, known in reversed(shown.items()) if len(name) > 2 and small.startswith(typed)]
    around += [known for small, known in reversed(shown.items()) if len(name) > 3 and small.endswith(f"_{typed}")]
    close = [shown[one] for one in difflib.get_close_matches(typed, shown, n=most, cutoff=alike)]
    close += [known for small, known in shown.items() if len(name) > 2 and sorted(small) == sorted(typed)]
    ours = [] if typed in shown else [shown[one] for one in ELSEWHERE.get(typed, ()) if one in shown]
    return list(dict.fromkeys([*ours, *close, *around]))[:most]


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "", *, alike: float = ALIKE) -> str:
    """A question that names what was probably meant; `otherwise` where nothing is near."""
    closest = near(name, names, alike=alike)
    return otherwise if closest is None else f'Did you mean "{closest}"?'


WORDS: dict[int | None, str] = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "a quota that is used up",
    errno.EROFS: "a read-only file system",
    errno.EIO: "an error of the disk",
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
AGAIN = "Look at the disk or the file server, then run it again: what is finished is kept."


def words_for(error: BaseException | None) -> str | None:
    """What such an error means; None for every other."""
    return WORDS.get(error.errno) if isinstance(error, OSError) else None


def tells_of_disk(error: SentdistError) -> bool:
    """Whether the cause of an error is a disk or file server that fails or refuses, not the file that was read."""
    cause = error.__cause__
    return words_for(cause) is not None or (isinstance(cause, OSError) and cause.errno in NO_RIGHT)


def os_error_of(error: Exception) -> OSError | None:
    """What the system said: the error itself, or the number in the message of a library in Rust (safetensors), which is no OSError."""
    if isinstance(error, OSError):
        return error
    found = None if isinstance(error, SentdistError) else re.search(r"\(os error (\d+)\)", str(error))
    return None if found is None else OSError(int(found[1]), os.strerror(int(found[1])))


@contextmanager
def explain_disk_errors(where: str) -> Iterator[None]:
    """Turn the error of a disk or file server that fails into a StoreError. where: what failed, if the error names no file."""
    try:
        yield
    except OSError as error:
        words = words_for(error)
        if words is None:
            raise
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else where
        raise StoreError(where=name, found=words, expected="a disk or file server that answers", remedy=AGAIN) from error


HUB_ANSWERS_WITHIN_S = 20.0  # what is asked before any work; else a silent hub is waited for half a minute and more


@dataclass(frozen=True, kw_only=True)
class HubTrouble:
    """found, remedy: as in an error of ours. has_answered: the hub itself said so; else it may answer another time."""

    found: str
    remedy: str
    has_answered: bool


def hub_trouble(error: Exception, *, revision: str | None = None) -> HubTrouble:
    """Read an error of huggingface_hub, or of a library that calls it. revision: what was asked for."""
    import huggingface_hub.errors as known  # half a second

    if isinstance(error, known.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # it was not in the cache either
    answered, silent = True, False
    match error:
        case known.RevisionNotFoundError():
            return HubTrouble(
                found=f'no revision "{revision}" on the hub', remedy="Copy the commit from its page: Files, History.", has_answered=answered
            )
        case known.GatedRepoError():
            return HubTrouble(
                found="a repository whose owner must let you in", remedy="Ask on its page, then `hf auth login`.", has_answered=answered
            )
        case known.RepositoryNotFoundError() | known.HFValidationError():
            return HubTrouble(
                found="no such repository on the hub, or a private one", remedy="Correct the name, or log in with `hf auth login`.",
                has_answered=answered,
            )  # fmt: skip
        case known.OfflineModeIsEnabled():
            return HubTrouble(
                found="HF_HUB_OFFLINE, which forbids to ask the hub",
                remedy="Unset HF_HUB_OFFLINE, or fetch it before.",
                has_answered=silent,
            )
    if isinstance(error, known.LocalTokenNotFoundError) or _status(error) in (401, 403):
        return HubTrouble(
            found="no login that may do this", remedy="Log in with `hf auth login`, by a token that may do what you ask for.",
            has_answered=answered,
        )  # fmt: skip
    return HubTrouble(
        found=f"no answer from the hub ({type(error).__name__}: {first_line(error)})",
        remedy="Check the network and try again.",
        has_answered=silent,
    )


def _status(error: Exception) -> int | None:
    code = getattr(getattr(error, "response", None), "status_code", None)
    return code if isinstance(code, int) else None
