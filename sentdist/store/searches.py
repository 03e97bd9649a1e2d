"""Searches in a store: Optuna's journal of each, the record that reports read from it, and curves of pruned trainings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, ConfigDict

from sentdist.recipe.stage import Json
from sentdist.store.store import ArtifactStore

if TYPE_CHECKING:
    from optuna.storages import JournalStorage
    from optuna.trial import FrozenTrial

TrialState = Literal["running", "finished", "pruned", "failed"]

SEARCHES = "searches"
JOURNAL, EVENTS = ".journal", ".jsonl"  # of Optuna; of versions before 0.5
ALL_TRIED = "all trials are made"  # reason for the end of a search
# User attributes of Optuna's trials. A trial that was interrupted or failed is enqueued again, as RETRY, under its number.
TRIAL, RETRY, RUNGS, ERROR = "trial", "retry", "rungs", "error"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # newer versions may add fields


class SearchRung(_Value):
    """The results of a trial at a share of its training."""

    share: float
    place: str | None = None  # of the stage: a rung, or at share 1 the training itself; None in records of older versions
    step: int  # optimizer steps so far
    dev: float  # best dev score so far (× 100)
    last_dev: float  # latest dev score (× 100)
    sentences: int  # trained on so far in this training
    seconds: float  # of this training so far


class Finalist(_Value):
    """A trial chosen by dev score for its method."""

    number: int  # of its trial
    method: str
    place: int  # 1 is the best of its method
    suggestion: dict[str, Json]
    dev: float  # × 100, with the recipe's first seed
    cells: dict[int, str]  # seed -> key of the test scores


class SearchTrial(_Value):
    """A suggestion and its results at each rung."""

    number: int  # counted from 0 over all methods, in the order of suggestions
    method: str
    suggestion: dict[str, Json]  # dotted field -> value
    train: str  # key of the complete training
    state: TrialState
    rungs: tuple[SearchRung, ...] = ()
    error: str | None = None
    began: float  # seconds since 1970
    ended: float | None = None

    @property
    def dev(self) -> float | None:
        """Best dev score up to its last rung (× 100); None before the first."""
        return self.rungs[-1].dev if self.rungs else None

    @property
    def seconds(self) -> float:
        """Seconds of its training up to its last rung, without entropy encoders and banks."""
        return self.rungs[-1].seconds if self.rungs else 0.0

    @property
    def sentences(self) -> int:
        """Sentences of its training up to its last rung, whether or not the training was in the store before the search."""
        return self.rungs[-1].sentences if self.rungs else 0


class SearchRecord(_Value):
    """The state of a search."""

    name: str
    identity: str  # digest of all that determines the suggestions
    recipe: dict[str, Json]
    methods: dict[str, tuple[str, ...]]  # searched method -> the fields of the space that affect it
    began: float  # seconds since 1970
    trials: tuple[SearchTrial, ...] = ()  # by number
    finalists: tuple[Finalist, ...] = ()
    reason: str | None = None  # why it is over; None: it is not
    spent_s: float = 0.0  # running time of all submissions

    def of_method(self, method: str) -> tuple[SearchTrial, ...]:
        """Return the trials of a method, in the order of `trials`."""
        return tuple(trial for trial in self.trials if trial.method == method)

    @property
    def spent_sentences(self) -> int:
        """Sentences trained on for all trials."""
        return sum(trial.sentences for trial in self.trials)


class _StoreJournal:
    """The lines of a journal in a store, as Optuna's `BaseJournalBackend`; not derived from it: importing Optuna takes 0.4 s."""

    def __init__(self, store: ArtifactStore, name: str) -> None:
        self._files, self._place = store.files, f"{SEARCHES}/{name}{JOURNAL}"
        self._logs: list[dict[str, Any]] = []
        self._size: int | None = None  # in bytes, after the last line written by this process
        for line in (self._files.read_text(self._place, errors="replace") or "").split("\n"):
            with suppress(ValueError):  # a line cut off by a crash
                self._logs.append(json.loads(line))

    def read_logs(self, log_number_from: int) -> Sequence[dict[str, Any]]:
        return self._logs[log_number_from:]

    def append_logs(self, logs: Sequence[dict[str, Any]]) -> None:
        for log in logs:
            self._size = self._files.append_line(self._place, json.dumps(log), size=self._size)
            self._logs.append(log)


def open_journal(store: ArtifactStore, name: str) -> JournalStorage:
    """Open Optuna's storage of all searches of a name.

    Writing to it raises StoreError once another process has written: two processes of one search would mix up their scores.

    Raises:
        StoreError: the store cannot be read.
    """
    from optuna.storages import JournalStorage

    return JournalStorage(cast(Any, _StoreJournal(store, name)))


def study_name(identity: str, method: str) -> str:
    """Return the name of the study of a method; the study named by the identity alone holds what concerns all methods."""
    return f"{identity} {method}"


def search_names(store: ArtifactStore) -> list[str]:
    """Return the names of the searches that were started with this store."""
    found = (name.rpartition(".") for name in store.files.names(SEARCHES) if name.endswith((JOURNAL, EVENTS)))
    return list(dict.fromkeys(name for name, _, _ in found))


def find_search(store: ArtifactStore, name: str) -> SearchRecord | None:
    """Return the newest search of that name; None if there is none, as for a sweep.

    Raises:
        StoreError: the store cannot be read.
    """
    if f"{name}{JOURNAL}" in store.files.names(SEARCHES):
        return search_record(open_journal(store, name), name)
    return _of_events(name, store.files.read_text(f"{SEARCHES}/{name}{EVENTS}", errors="replace") or "")


def search_record(storage: JournalStorage, name: str) -> SearchRecord | None:
    """Return the record of the search that was submitted last; None if there is none."""
    searches = [study for study in storage.get_all_studies() if "submitted" in study.user_attrs]
    if not searches:
        return None
    head = max(searches, key=lambda study: study.user_attrs["submitted"])
    ids = {study.study_name: study._study_id for study in storage.get_all_studies()}
    trials: dict[int, SearchTrial] = {}
    for method in head.user_attrs["methods"]:
        study = ids.get(study_name(head.study_name, method))
        for trial in [] if study is None else storage.get_all_trials(study, deepcopy=False):
            if (about := trial_facts(trial)) is not None:
                trials[about["number"]] = _trial(trial, method, about)
    return SearchRecord(name=name, identity=head.study_name, trials=_by_number(trials), **head.user_attrs)


def trial_facts(trial: FrozenTrial) -> dict[str, Any] | None:
    """Return number, suggestion and key of the training of a trial; None for a suggestion that became none, as a repeated one."""
    found: dict[str, Any] | None = trial.user_attrs.get(TRIAL) or trial.user_attrs.get(RETRY)
    return found


_STATES: dict[str, TrialState] = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed"}


def _trial(trial: FrozenTrial, method: str, about: Mapping[str, Any]) -> SearchTrial:
    began, ended = trial.datetime_start, trial.datetime_complete
    return SearchTrial(
        method=method,
        state=_STATES.get(trial.state.name, "running"),
        rungs=trial.user_attrs.get(RUNGS, ()),
        error=trial.user_attrs.get(ERROR),
        began=0.0 if began is None else began.timestamp(),
        ended=None if ended is None else ended.timestamp(),
        **about,
    )


def _by_number(trials: Mapping[int, SearchTrial]) -> tuple[SearchTrial, ...]:
    return tuple(trials[number] for number in sorted(trials))


def _of_events(name: str, text: str) -> SearchRecord | None:
    """Return the newest search from the log of a version before 0.5: on each line 8 digits of a checksum and an event."""
    head: dict[str, Any] = {}
    trials: dict[int, dict[str, Any]] = {}
    for event in _events(text):
        number, at = int(event.get("number", -1)), event.get("at", 0.0)
        match event.get("what"):
            case "begun":
                if event["identity"] != head.get("identity"):
                    head, trials = event | {"name": name, "began": at, "spent_s": 0.0}, {}
                head |= {"reason": None, "since": at}
            case "suggested":
                trials[number] = event | {"state": "running", "began": at}
            case "rung" if number in trials:
                trials[number]["rungs"] = (*trials[number].get("rungs", ()), event)
            case "ended" if number in trials:
                trials[number] |= {"state": event["state"], "error": event["error"], "ended": at}
            case "chosen":
                head |= {"finalists": event["finalists"], "reason": event["reason"], "spent_s": head["spent_s"] + at - head["since"]}
    found = {number: SearchTrial.model_validate(trial) for number, trial in trials.items()}
    return SearchRecord.model_validate(head | {"trials": _by_number(found)}) if head else None


def _events(text: str) -> Iterator[dict[str, Any]]:
    for line in text.split("\n"):
        with suppress(ValueError):  # a damaged line
            yield json.loads(line.partition(" ")[2])


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
