"""Which run each stage of a sweep belongs to: the trial's own, or one that several trials point to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sentdist.plan.stage import Stage, label_of
from sentdist.store.record import Record
from sentdist.store.restored import restored
from sentdist.store.sweep import SweepRecord, TrialRecord
from sentdist.tracking.parameters import DataSet, data_sets, stage_parameters, trial_parameters
from sentdist.tracking.sweep_summary import distinct_trials

KINDS = {"train": "training"}  # where the word of a run's name is not the kind's own


@dataclass(frozen=True, kw_only=True)
class RunLayout:
    """A sweep and those of its stages that are known, by key (of an unfinished sweep that is read back, the finished ones)."""

    sweep: SweepRecord
    stages: Mapping[str, Stage]

    @classmethod
    def of_records(cls, sweep: SweepRecord, records: Mapping[str, Record]) -> RunLayout:
        """The layout of a sweep of which only the records are known."""
        found = {key: restored(key, records) for key in records}
        return cls(sweep=sweep, stages={key: stage for key, stage in found.items() if stage is not None})

    @cached_property
    def trials(self) -> dict[str, TrialRecord]:
        return {trial.key: trial for trial in distinct_trials(self.sweep)}

    @cached_property
    def own(self) -> dict[str, str]:
        """Key of a training that one trial alone needs -> key of that trial; it runs under the trial itself (Tune may prune it)."""
        mentions = self.sweep.mentions
        return {trial.train: trial.key for trial in self.trials.values() if trial.train is not None and mentions[trial.train] == 1}

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """Keys of the stages with a run of their own, inputs before users."""
        return tuple(key for key in self.sweep.places if key not in self.own and key not in self.trials)

    def owner(self, key: str) -> str:
        """The key (of a trial or a stage) whose run shows this stage."""
        return self.own.get(key, key)

    def shown_keys(self, owner: str) -> tuple[str, ...]:
        """The stages that a run shows: a shared one itself; of a trial its scores and its training."""
        trial = self.trials.get(owner)
        return (owner,) if trial is None or trial.train is None else (owner, trial.train)

    def shown_records(self, owner: str, records: Mapping[str, Record]) -> dict[str, Record]:
        """The records that a run shows, of those that are known; nothing while only trainings are known that have runs of their own."""
        found = {key: records[key] for key in self.shown_keys(owner) if key in records}
        return found if owner in found or any(self.owner(key) == owner for key in found) else {}

    def name(self, owner: str) -> str:
        """A trial's own name; a shared stage's begins with its kind, so that it is not taken for a trial."""
        return self.trials[owner].name if owner in self.trials else f"{KINDS.get(self.kind(owner), self.kind(owner))}: {self.label(owner)}"

    def link_name(self, owner: str) -> str:
        """As `name`, for lists that say the kind themselves."""
        return self.trials[owner].name if owner in self.trials else self.label(owner)

    def identity(self, owner: str) -> tuple[str, str]:
        """The tag by which a restart finds the run again."""
        return ("sentdist.trial" if owner in self.trials else "sentdist.key", owner)

    def kind(self, key: str) -> str:
        return self.sweep.places[key].partition("/")[0]

    def label(self, key: str) -> str:
        return label_of(self.sweep.places[key])

    def parameters(self, owner: str) -> dict[str, str]:
        if owner in self.trials:
            return trial_parameters(self.trials[owner], self.stages.get(owner))
        return stage_parameters(self.stages[owner]) if owner in self.stages else {}

    def data_sets(self, owner: str) -> list[DataSet]:
        """The data sets of a run. Those that all trials share stand on the sweep's run instead."""
        found = data_sets(self.stages[owner]) if owner in self.stages else []
        return [one for one in found if one not in self.common_data_sets] if owner in self.trials else found

    @cached_property
    def common_data_sets(self) -> tuple[DataSet, ...]:
        """What each of several trained trials reads: it stands on the sweep's run, once. Nothing where one of them is not known."""
        trained = [key for key, trial in self.trials.items() if trial.train is not None]
        if len(trained) < 2 or not set(trained) <= self.stages.keys():
            return ()
        read = [data_sets(self.stages[key]) for key in trained]
        common = set(read[0]).intersection(*read)
        return tuple(one for one in read[0] if one in common)

    def made_from(self, owner: str) -> list[str]:
        """Keys of the shared stages that the run's stages take in directly, in the order of building."""
        users = self.shown_keys(owner)
        inputs = {one.key for user in users if user in self.stages for one in self.stages[user].inputs} | set(users[1:])
        return [key for key in self.shared if key in inputs]

    def used_by(self, stage: str) -> list[str]:
        """Keys of the trials that need a stage."""
        return self._users.get(stage, [])

    @cached_property
    def _users(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for trial in self.trials.values():
            for stage in trial.stages:
                found.setdefault(stage, []).append(trial.key)
        return found
