"""Logs of searches: append and read events, derive the state and record of a search, and keep curves of pruned trainings."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from sentdist.errors import StoreError, counted
from sentdist.recipe.stage import Json
from sentdist.store.store import ArtifactStore

TrialState = Literal["running", "finished", "pruned", "failed"]

SEARCHES = "searches"
SEAL_LENGTH = 8  # hex digits of the sha256 that precedes each line

log = logging.getLogger(__name__)


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # newer versions may add fields


class SearchBegun(_Value):
    """A search was submitted. A change of `identity` starts another search."""

    what: Literal["begun"] = "begun"
    identity: str  # digest of all that determines the suggestions
    recipe: dict[str, Json]
    methods: dict[str, tuple[str, ...]]  # searched method -> the fields of the space that affect it
    at: float = Field(default_factory=time.time)


class TrialSuggested(_Value):
    """A trial starts."""

    what: Literal["suggested"] = "suggested"
    number: int
    method: str
    suggestion: dict[str, Json]  # dotted field -> value
    train: str  # key of the complete training
    forecast_s: float | None = None  # of the work that the store lacks; None if the speed is unknown
    at: float = Field(default_factory=time.time)


class RungReached(_Value):
    """A trial has reached a share of its training."""

    what: Literal["rung"] = "rung"
    number: int
    share: float
    key: str  # of the stage: a rung, or at share 1 the training itself
    place: str | None = None  # of the stage; None in records of older versions
    step: int  # optimizer steps so far
    dev: float  # best dev score so far (× 100)
    last_dev: float  # latest dev score (× 100)
    sentences: int  # trained on so far in this training
    seconds: float  # of this training so far
    paid_s: float = 0.0  # new work caused by the trial, inputs (entropy encoders, banks) included, that no other trial has paid for
    paid_sentences: int = 0  # likewise, trained on
    paid_for: tuple[str, ...] = ()  # keys of those stages
    at: float = Field(default_factory=time.time)


class TrialEnded(_Value):
    """A trial has ended."""

    what: Literal["ended"] = "ended"
    number: int
    state: Literal["finished", "pruned", "failed"]
    error: str | None = None  # one line, of a failed trial
    at: float = Field(default_factory=time.time)


class Finalist(_Value):
    """A trial chosen by dev score for its method."""

    number: int  # of its trial
    method: str
    place: int  # 1 is the best of its method
    suggestion: dict[str, Json]
    dev: float  # × 100, with the recipe's first seed
    cells: dict[int, str]  # seed -> key of the test scores


class FinalistsChosen(_Value):
    """The search is over; the finalists are trained with all seeds."""

    what: Literal["chosen"] = "chosen"
    finalists: tuple[Finalist, ...]
    reason: str  # why the search is over, for users
    at: float = Field(default_factory=time.time)


class SubmissionSeen(_Value):
    """A submission was alive at this time. Its seconds count up to its last event."""

    what: Literal["left"] = "left"
    at: float = Field(default_factory=time.time)


SearchEvent = Annotated[
    SearchBegun | TrialSuggested | RungReached | TrialEnded | FinalistsChosen | SubmissionSeen, Field(discriminator="what")
]
_EVENT: TypeAdapter[SearchEvent] = TypeAdapter(SearchEvent)


class SearchTrial(_Value):
    """A suggestion and its results at each rung."""

    number: int  # counted from 0 over all methods, in the order of suggestions
    method: str
    suggestion: dict[str, Json]
    train: str
    state: TrialState
    rungs: tuple[RungReached, ...] = ()
    forecast_s: float | None = None
    error: str | None = None

    @property
    def dev(self) -> float | None:
        """Best dev score up to its last rung (× 100); None before the first."""
        return self.rungs[-1].dev if self.rungs else None

    @property
    def paid_s(self) -> float:
        """Seconds of work that the trial has caused."""
        return sum(rung.paid_s for rung in self.rungs)

    @property
    def training_s(self) -> float:
        """Estimated seconds of its complete training at its speed so far, without inputs (entropy encoders, banks)."""
        return sum(rung.seconds / rung.share for rung in self.rungs[-1:])

    @property
    def whole_s(self) -> float:
        """Estimated seconds of work at its end; inputs are paid once."""
        return self.paid_s + self.training_s - sum(rung.seconds for rung in self.rungs[-1:])

    @property
    def paid_sentences(self) -> int:
        """Sentences trained on for the trial."""
        return sum(rung.paid_sentences for rung in self.rungs)


class SearchRecord(_Value):
    """The state of a search."""

    name: str
    identity: str
    recipe: dict[str, Json]
    methods: dict[str, tuple[str, ...]]  # searched method -> the fields of the space that affect it
    trials: tuple[SearchTrial, ...]  # in the order in which they ended; running ones last
    finalists: tuple[Finalist, ...]
    reason: str | None  # why it is over; None: it is not
    spent_hours: float  # between the first and the last line of each submission
    events: tuple[SearchEvent, ...]  # in order, to replay for the sampler

    def of_method(self, method: str) -> tuple[SearchTrial, ...]:
        """Return the trials of a method, in the order of `trials`."""
        return tuple(trial for trial in self.trials if trial.method == method)

    @property
    def spent_sentences(self) -> int:
        """Sentences trained on for all trials."""
        return sum(trial.paid_sentences for trial in self.trials)


def append_event(store: ArtifactStore, name: str, event: SearchEvent, *, size: int | None = None) -> int:
    """Append an event, durable when this returns, and return the new size of the log in bytes.

    Args:
        size: The last returned size; None for the first event of this process.

    Raises:
        StoreError: the store is full or cannot be written, or another process has appended an event: two processes of one search would
            mix up their scores.
    """
    text = event.model_dump_json()
    return store.files.append_line(f"{SEARCHES}/{name}.jsonl", f"{_seal(text)} {text}", size=size)


def load_events(store: ArtifactStore, name: str) -> tuple[SearchEvent, ...]:
    """Return the events of all searches of that name, oldest first; log a warning for damaged lines.

    Raises:
        StoreError: the store cannot be read.
    """
    text = store.files.read_text(f"{SEARCHES}/{name}.jsonl", errors="replace") or ""
    lines = text.split("\n")  # not at U+2028, which JSON does not escape
    events = [event for line in lines if line.strip() and (event := _event(line)) is not None]
    if (lost := sum(bool(line.strip()) for line in lines) - len(events)) > 0:
        log.warning("%s/%s/%s.jsonl: %s left out: damaged", store.shown, SEARCHES, name, counted(lost, "line"))
    return tuple(events)


def search_names(store: ArtifactStore) -> list[str]:
    """Return the names of the searches that were started with this store."""
    return [name.removesuffix(".jsonl") for name in store.files.names(SEARCHES) if name.endswith(".jsonl")]


def find_search(store: ArtifactStore, name: str) -> SearchRecord | None:
    """Return the newest search of that name; None if there is none, as for a sweep."""
    events = latest(load_events(store, name))
    return None if not events else search_record(name, events)


def load_search(store: ArtifactStore, name: str) -> SearchRecord:
    """Read a search back.

    Raises:
        StoreError: no search of that name.
    """
    found = find_search(store, name)
    if found is None:
        remedy = "Run `sentdist sweep` first, with a recipe that has `search:`."
        raise StoreError(where=f"{store.shown}: search {name}", found="nothing", expected="a search that was started", remedy=remedy)
    return found


def latest(events: Sequence[SearchEvent], *, identity: str | None = None) -> tuple[SearchEvent, ...]:
    """Return the events of the newest search; empty if it has another identity than the given one."""
    kept: list[SearchEvent] = []
    current = None
    for event in events:
        if isinstance(event, SearchBegun):
            if event.identity != current:
                kept = []
            current = event.identity
        if current is not None:
            kept.append(event)
    return tuple(kept) if identity in (None, current) else ()


def search_record(name: str, events: Sequence[SearchEvent]) -> SearchRecord:
    """Return the record of a search from its events. The first is a `SearchBegun`."""
    state = SearchState()
    for event in events:
        state.take(event)
    return state.record(name)


class SearchState:
    """The state of a search, updated event by event: the same for the process that runs it and for readers of its log.

    Events of a trial without a `TrialSuggested`, and repeated rungs, are ignored.
    """

    def __init__(self) -> None:
        self.events: list[SearchEvent] = []
        self.trials: dict[int, SearchTrial] = {}  # by number; a trial moves to the end when it ends
        self.rungs: list[RungReached] = []  # in order of arrival
        self.chosen: FinalistsChosen | None = None  # the last choice
        self.is_over = False  # whether the choice was made since the last `SearchBegun`
        self._begun: SearchBegun | None = None

    def take(self, event: SearchEvent) -> None:
        """Update the state with an event."""
        self.events.append(event)
        match event:
            case SearchBegun():
                self._begun, self.is_over = event, False
            case TrialSuggested():
                self.trials[event.number] = SearchTrial(
                    number=event.number, method=event.method, suggestion=event.suggestion, train=event.train, state="running",
                    forecast_s=event.forecast_s,
                )  # fmt: skip
            case RungReached() if event.number in self.trials:
                trial = self.trials[event.number]
                if event.share not in [rung.share for rung in trial.rungs]:
                    update: dict[str, object] = {"rungs": (*trial.rungs, event)}
                    if trial.state == "failed":  # it was tried again
                        update |= {"state": "running", "error": None}
                    self.trials[event.number] = trial.model_copy(update=update)
                    self.rungs.append(event)
            case TrialEnded() if event.number in self.trials:  # move to the end
                ended = self.trials.pop(event.number).model_copy(update={"state": event.state, "error": event.error})
                self.trials[event.number] = ended
            case FinalistsChosen():
                self.chosen, self.is_over = event, True

    def devs_before(self, trial: SearchTrial) -> list[float]:
        """Return the dev scores of the trials of its method that reached its last rung before it, in order of arrival."""
        last = trial.rungs[-1]
        reached = (one for one in self.rungs if one.share == last.share and self.trials[one.number].method == trial.method)
        return [one.dev for one in takewhile(lambda one: one.number != trial.number, reached)]

    def best_dev(self, method: str) -> float | None:
        """Return the best dev score of a method's finished trials; None while there is none."""
        return max(
            (one.dev for one in self.trials.values() if one.method == method and one.state == "finished" and one.dev is not None),
            default=None,
        )

    @property
    def spent_sentences(self) -> int:
        """Sentences trained on for all trials."""
        return sum(one.paid_sentences for one in self.rungs)

    @property
    def paid_for(self) -> set[str]:
        """Keys of the stages that trials have paid for."""
        return {key for one in self.rungs for key in one.paid_for}

    @property
    def spent_hours(self) -> float:
        """Hours between the first and the last line of each submission."""
        return sum(_submissions(self.events)) / 3600

    def record(self, name: str) -> SearchRecord:
        """Return the state as a record."""
        assert self._begun is not None, "the first event is SearchBegun"
        ended = [trial for trial in self.trials.values() if trial.state != "running"]
        return SearchRecord(
            name=name,
            identity=self._begun.identity,
            recipe=self._begun.recipe,
            methods=self._begun.methods,
            trials=(*ended, *(trial for trial in self.trials.values() if trial.state == "running")),
            finalists=self.chosen.finalists if self.chosen else (),
            reason=self.chosen.reason if self.chosen and self.is_over else None,
            spent_hours=self.spent_hours,
            events=tuple(self.events),
        )


def _submissions(events: Sequence[SearchEvent]) -> Iterator[float]:
    """Yield the seconds of each submission, up to its choice of finalists or its last line."""
    first = last = 0.0
    for event in events:
        if isinstance(event, SearchBegun):
            yield last - first
            first = last = event.at
        elif not isinstance(event, FinalistsChosen):
            last = max(last, event.at)
    yield last - first


def _event(line: str) -> SearchEvent | None:
    seal, _, text = line.partition(" ")
    if seal != _seal(text):
        return None
    try:
        return _EVENT.validate_json(text)
    except ValueError:  # possibly of another version
        return None


def _seal(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:SEAL_LENGTH]


HISTORY_FILE = "history.jsonl"  # in the folder of a training; of a rung, in the folder of its checkpoint


def read_curve(store: ArtifactStore, place: str, *, within: str = "") -> str:
    """Return the text of the history of an artifact, in its folder `within`; "" if there is none.

    Raises:
        StoreError: the store cannot be read, or the file is no text.
    """
    artifact = store.at(place)
    return "" if artifact is None else store.files.read_text(f"{artifact.record.files_place}/{within}{HISTORY_FILE}") or ""


def keep_pruned_curve(store: ArtifactStore, train: str, lines: str) -> None:
    """Store the history of a pruned training. train: its key.

    Raises:
        StoreError: the store is full or cannot be written.
    """
    store.files.write_text(_place(train), lines)


def read_pruned_curve(store: ArtifactStore, train: str) -> str:
    """Return the stored history of a pruned training; "" if it was not pruned, or by an older version.

    Raises:
        StoreError: the store cannot be read, or the file is no text.
    """
    return store.files.read_text(_place(train)) or ""


def _place(train: str) -> str:
    return f"{SEARCHES}/curves/{train}.jsonl"
