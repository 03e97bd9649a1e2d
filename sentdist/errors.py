"""The errors that a user can meet: each says where, what was found, what was expected and what to do, and survives a pickle."""

from __future__ import annotations


class SentdistError(Exception):
    """A mistake or mishap that a person can act on.

    Parameters are kept as attributes, so that a caller across a process border (Ray pickles exceptions) can still read them.
    """

    def __init__(self, *, where: str, found: str, expected: str, remedy: str) -> None:
        super().__init__(f"{where}: found {found}; expected {expected}. {remedy}")
        self.where = where
        self.found = found
        self.expected = expected
        self.remedy = remedy

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
    """A finished artifact that is damaged or gone. Its stage counts as not finished: whoever asks for it has it built again."""


class ResourceError(SentdistError):
    """A request that the cluster at hand can never satisfy."""


class TrainingDiverged(SentdistError):  # noqa: N818 - an event that ends a run, as in the design
    """A loss or gradient that is not finite; raised before the optimizer is touched."""


class SweepStopped(SentdistError):  # noqa: N818 - as above
    """A person ended a sweep; what it had built is kept."""


def _rebuild(kind: type[SentdistError], state: dict[str, str]) -> SentdistError:
    return kind(where=state["where"], found=state["found"], expected=state["expected"], remedy=state["remedy"])
