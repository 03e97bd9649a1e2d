"""What a search has tried, and what came of it: lines that are added as things happen, and the value that they come to."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from sentdist.errors import StoreError, counted
from sentdist.plan.stage import Json
from sentdist.store.store import ArtifactStore

TrialState = Literal["running", "finished", "pruned", "failed"]

SEARCHES = "searches"
SEAL_LENGTH = 8  # hex digits of the sha256 that stands before each line

log = logging.getLogger(__name__)


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may note more


class SearchBegun(_Value):
    """A search was submitted. identity: what its suggestions follow from; lines before one with another identity are another search."""

    what: Literal["begun"] = "begun"
    identity: str
    recipe: dict[str, Json]
    methods: dict[str, tuple[str, ...]]  # that are searched -> the fields of the space that make a difference to them
    at: float = Field(default_factory=time.time)


class TrialSuggested(_Value):
    """A trial begins. train: key of its whole training. forecast_s: of what the store lacked of it, None where no speed was known."""

    what: Literal["suggested"] = "suggested"
    number: int
    method: str
    suggestion: dict[str, Json]  # dotted field -> value
    train: str
    forecast_s: float | None = None
    at: float = Field(default_factory=time.time)


class RungReached(_Value):
    """A trial has come to a share of its training.

    key, place: of the stage that holds it: an unfinished training, or at share 1 the training itself. step: optimizer steps until then.
    dev: best dev score until then (× 100). last_dev: the one at its end. sentences: trained on in this training until then.
    seconds: that this training took until then. paid_s: that had to be spent because the store lacked it, with all that it needs (entropy
    encoders, banks) and no other trial had paid for; 0 for what was there. paid_sentences: likewise, trained on. paid_for: keys of those
    stages.
    """

    what: Literal["rung"] = "rung"
    number: int
    share: float
    key: str
    place: str | None = None  # None in records of older versions
    step: int
    dev: float
    last_dev: float
    sentences: int
    seconds: float
    paid_s: float = 0.0
    paid_sentences: int = 0
    paid_for: tuple[str, ...] = ()
    at: float = Field(default_factory=time.time)


class TrialEnded(_Value):
    """A trial is over. error: in one line, of a failed one."""

    what: Literal["ended"] = "ended"
    number: int
    state: Literal["finished", "pruned", "failed"]
    error: str | None = None
    at: float = Field(default_factory=time.time)


class Finalist(_Value):
    """What dev chose for a method. place: 1 is the best of its method. cells: seed -> key of the scores on test."""

    number: int  # of its trial
    method: str
    place: int
    suggestion: dict[str, Json]
    dev: float  # × 100, with the recipe's first seed
    cells: dict[int, str]


class FinalistsChosen(_Value):
    """The search is over, and these are trained with all seeds. reason: why it is over, for people."""

    what: Literal["chosen"] = "chosen"
    finalists: tuple[Finalist, ...]
    reason: str
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
    """One suggestion and what came of it, rung by rung."""

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
        """Best dev score until its last rung (× 100); None before the first."""
        return self.rungs[-1].dev if self.rungs else None

    @property
    def paid_s(self) -> float:
        """The price of the trial: seconds of work that it has caused."""
        return sum(rung.paid_s for rung in self.rungs)

    @property
    def training_s(self) -> float:
        """Its whole training at its pace so far, without what it needs beside (entropy encoders, banks)."""
        return sum(rung.seconds / rung.share for rung in self.rungs[-1:])

    @property
    def whole_s(self) -> float:
        """The price at its end: what it needs beside is paid once."""
        return self.paid_s + self.training_s - sum(rung.seconds for rung in self.rungs[-1:])

    @property
    def paid_sentences(self) -> int:
        """Sentences that were trained on for it."""
        return sum(rung.paid_sentences for rung in self.rungs)


class SearchRecord(_Value):
    """All that is known of a search."""

    name: str
    identity: str
    recipe: dict[str, Json]
    methods: dict[str, tuple[str, ...]]  # that are searched -> the fields of the space that make a difference to them
    trials: tuple[SearchTrial, ...]  # in the order in which they ended; those that run come last
    finalists: tuple[Finalist, ...]
    reason: str | None  # why it is over; None: it is not
    spent_hours: float  # between the first and the last line of each submission
    events: tuple[SearchEvent, ...]  # as they happened: what is reported to a searcher again

    def of_method(self, method: str) -> tuple[SearchTrial, ...]:
        """The trials of a method, in the order of `trials`."""
        return tuple(trial for trial in self.trials if trial.method == method)

    @property
    def spent_sentences(self) -> int:
        """Sentences that were trained on for all trials."""
        return sum(trial.paid_sentences for trial in self.trials)


def append_event(store: ArtifactStore, name: str, event: SearchEvent, *, size: int | None = None) -> int:
    """Note what happened; on the disk when this returns. size: what this returned last, to the same process; None: nothing yet.

    Raises:
        StoreError: the store is full or cannot be written, or another process has noted something since: two that carry one search out
            would take each other's scores for their own.
    """
    text = event.model_dump_json()
    return store.files.append_line(f"{SEARCHES}/{name}.jsonl", f"{_seal(text)} {text}", size=size)


def load_events(store: ArtifactStore, name: str) -> tuple[SearchEvent, ...]:
    """All lines of all searches of that name, oldest first; a line that is damaged is left out, with a warning.

    Raises:
        StoreError: the store cannot be read.
    """
    text = store.files.read_text(f"{SEARCHES}/{name}.jsonl", errors="replace") or ""
    lines = text.split("\n")  # not at U+2028, which JSON leaves as it is
    events = [event for line in lines if line.strip() and (event := _event(line)) is not None]
    if (lost := sum(bool(line.strip()) for line in lines) - len(events)) > 0:
        log.warning("%s/%s/%s.jsonl: %s left out: damaged", store.shown, SEARCHES, name, counted(lost, "line"))
    return tuple(events)


def search_names(store: ArtifactStore) -> list[str]:
    """Names of the searches that were started with this store."""
    return [name.removesuffix(".jsonl") for name in store.files.names(SEARCHES) if name.endswith(".jsonl")]


def find_search(store: ArtifactStore, name: str) -> SearchRecord | None:
    """The newest search of that name; None where there is none, as for a sweep."""
    events = latest(load_events(store, name))
    return None if not events else search_record(name, events)


def load_search(store: ArtifactStore, name: str) -> SearchRecord:
    """Read a search back.

    Raises:
        StoreError: no search of that name.
    """
    found = find_search(store, name)
    if found is None:
        raise StoreError(
            where=f"{store.shown}: search {name}", found="nothing", expected="a search that was started",
            remedy="Run `sentdist sweep` first, with a recipe that has `search:`.",
        )  # fmt: skip
    return found


def latest(events: Sequence[SearchEvent], *, identity: str | None = None) -> tuple[SearchEvent, ...]:
    """The lines of the newest search (of an identity): those since the last one that began as another."""
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
    """What lines come to. The first is a `SearchBegun`."""
    state = SearchState()
    for event in events:
        state.take(event)
    return state.record(name)


class SearchState:
    """What the lines of a search come to, taken one after another: whoever reads them back and whoever notes them knows the same.
    Lines of a trial whose beginning is lost count for nothing, and so does a rung that is noted twice.

    trials: by number; those that ended in the order in which they did, behind those that were suggested before. rungs: in order of arrival.
    chosen: the last choice. is_over: whether it was made since the search began, or began again.
    """

    def __init__(self) -> None:
        self.events: list[SearchEvent] = []
        self.trials: dict[int, SearchTrial] = {}
        self.rungs: list[RungReached] = []
        self.chosen: FinalistsChosen | None = None
        self.is_over = False
        self._begun: SearchBegun | None = None

    def take(self, event: SearchEvent) -> None:
        """One line more."""
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
            case TrialEnded() if event.number in self.trials:  # put behind those that ended before
                ended = self.trials.pop(event.number).model_copy(update={"state": event.state, "error": event.error})
                self.trials[event.number] = ended
            case FinalistsChosen():
                self.chosen, self.is_over = event, True

    def devs_before(self, trial: SearchTrial) -> list[float]:
        """Dev scores of the trials of its method that reached its last rung before it, in order of arrival."""
        last = trial.rungs[-1]
        there = (one for one in self.rungs if one.share == last.share and self.trials[one.number].method == trial.method)
        return [one.dev for one in takewhile(lambda one: one.number != trial.number, there)]

    def best_dev(self, method: str) -> float | None:
        """The best dev score of a method's finished trials; None while there is none."""
        return max(
            (one.dev for one in self.trials.values() if one.method == method and one.state == "finished" and one.dev is not None),
            default=None,
        )

    @property
    def spent_sentences(self) -> int:
        """Sentences that were trained on for all trials."""
        return sum(one.paid_sentences for one in self.rungs)

    @property
    def paid_for(self) -> set[str]:
        """Keys of the stages that trials have paid for."""
        return {key for one in self.rungs for key in one.paid_for}

    @property
    def spent_hours(self) -> float:
        """Between the first and the last line of each submission."""
        return sum(_submissions(self.events)) / 3600

    def record(self, name: str) -> SearchRecord:
        """As a value."""
        assert self._begun is not None, "a search begins with its recipe"
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
    """Seconds of each submission until it chose, or until its last line."""
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
    except ValueError:  # of an older version, perhaps
        return None


def _seal(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:SEAL_LENGTH]


HISTORY_FILE = "history.jsonl"  # among the files of a training; in a rung, among those of its checkpoint


def read_curve(store: ArtifactStore, place: str, *, within: str = "") -> str:
    """The lines of the history of an artifact, in its folder `within`; "" where there are none.

    Raises:
        StoreError: the store cannot be read, or the file is no text.
    """
    artifact = store.at(place)
    return "" if artifact is None else store.files.read_text(f"{artifact.record.files_place}/{within}{HISTORY_FILE}") or ""


def keep_pruned_curve(store: ArtifactStore, train: str, lines: str) -> None:
    """Keep the lines of a training that was pruned; train: its key.

    Raises:
        StoreError: the store is full or cannot be written.
    """
    store.files.write_text(_place(train), lines)


def read_pruned_curve(store: ArtifactStore, train: str) -> str:
    """The lines that were kept; "" for a training that was not pruned, or was by an older version.

    Raises:
        StoreError: the store cannot be read, or the file is no text.
    """
    return store.files.read_text(_place(train)) or ""


def _place(train: str) -> str:
    return f"{SEARCHES}/curves/{train}.jsonl"
