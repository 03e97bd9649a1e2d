"""Collect garbage in a store, find dependent artifacts, and forecast the work that is left of a plan."""

from __future__ import annotations

import itertools
import math
import re
import statistics
import time
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass

from pyarrow import fs

from sentdist.errors import duration
from sentdist.recipe.stage import Json, Stage
from sentdist.recipe.stages import STAGES, Bank, Train
from sentdist.recipe.unroll import Plan
from sentdist.store.local_storage import maker_of
from sentdist.store.object_storage import DATA
from sentdist.store.storage import reading, writing
from sentdist.store.store import ASIDE, RECORD, RUNNING, STAGING, Artifact, ArtifactStore

OURS = re.compile(rf"({'|'.join(map(re.escape, (*STAGES, STAGING, ASIDE)))})/|{RUNNING}/[0-9a-f]+$")
UNFINISHED_KEPT_S = 30 * 24 * 3600.0  # checkpoints of an unfinished training: it resumes from them when submitted again
ELSEWHERE_KEPT_S = 24 * 3600.0  # staging folders of other machines: a shard may take hours, and clocks may differ


def orphans(store: ArtifactStore, *, older_than_s: float = 3600.0) -> list[str]:
    """Return unused places that were not modified for a while.

    These are: data without a record or not named by it, and staging folders, both left by crashes; damaged artifacts moved aside; and
    checkpoints of trainings that are finished or were not continued for a month. Only folders of known kinds are considered, so that a
    wrong root loses nothing. Files of running processes of this machine stay.
    """
    selector = fs.FileSelector(store.base, recursive=True, allow_not_found=True)
    newest: dict[str, float] = {}
    finished: set[str] = set()
    data: dict[str, dict[str, float]] = {}  # place -> folders of its writers, of which its record names one
    with reading(store.shown):
        infos = store.filesystem.get_file_info(selector)
    for info in infos:
        parts = info.path.removeprefix(f"{store.base}/").split("/")
        if (info.type == fs.FileType.Directory and len(parts) > 2) or len(parts) < 2 or not OURS.match("/".join(parts[:2])):
            continue
        if info.type == fs.FileType.Directory and info.mtime is None:  # of a bucket: a writer may just have started
            continue
        place, touched = "/".join(parts[:2]), info.mtime.timestamp() if info.mtime else 0.0
        if len(parts) > 3 and parts[0] in STAGES and parts[2].startswith(DATA):
            folders, folder = data.setdefault(place, {}), "/".join(parts[:3])
            folders[folder] = max(folders.get(folder, 0.0), touched)
        if len(parts) == 3 and parts[2] == RECORD and parts[0] in STAGES:
            finished.add(place)
        newest[place] = max(newest.get(place, 0.0), touched)
    for place in finished:
        if len(data.get(place, {})) > 1 and (artifact := store.at(place)) is not None:
            newest |= {folder: touched for folder, touched in data[place].items() if folder != artifact.record.files_place}
    keys = {place.rpartition("-")[2] for place in finished}
    now = time.time()
    return sorted(
        place
        for place, touched in newest.items()
        if place not in finished and now - touched >= max(older_than_s, _kept_s(place, finished_keys=keys))
    )


def _kept_s(place: str, *, finished_keys: Set[str]) -> float:
    """Return the minimum age (s) for removal: processes of other machines may need the place."""
    kind, _, name = place.partition("/")
    if kind == RUNNING:
        return -math.inf if name in finished_keys else UNFINISHED_KEPT_S
    maker = maker_of(name) if kind == STAGING else None
    return {"living": math.inf, "elsewhere": ELSEWHERE_KEPT_S, "dead": -math.inf, None: -math.inf}[maker]


def collect_garbage(store: ArtifactStore, *, older_than_s: float = 3600.0) -> list[str]:
    """Remove the orphans; return the places removed, without those that have gone or were finished meanwhile."""
    return [place for place in orphans(store, older_than_s=older_than_s) if _remove(store, place)]


def _remove(store: ArtifactStore, place: str) -> bool:
    path = f"{store.base}/{place}"
    with writing(store.shown), suppress(FileNotFoundError):
        if place.partition("/")[0] in STAGES and store.filesystem.get_file_info(f"{path}/{RECORD}").type == fs.FileType.File:
            return False
        if store.filesystem.get_file_info(path).type == fs.FileType.File:
            store.filesystem.delete_file(path)
        else:
            store.filesystem.delete_dir(path)
        return True
    return False


def dependents(store: ArtifactStore, artifact: Artifact) -> list[Artifact]:
    """Return the artifacts made from this one, directly or not; each comes before its inputs."""
    found: list[Artifact] = []
    keys = {artifact.key}
    left = list(store.artifacts())
    while made := [one for one in left if keys.intersection(one.record.inputs)]:
        found += made
        keys |= {one.key for one in made}
        left = [one for one in left if one.key not in keys]
    ordered: list[Artifact] = []
    while found:
        needed = {key for one in found for key in one.record.inputs}
        ordered += [one for one in found if one.key not in needed]
        found = [one for one in found if one.key in needed]
    return ordered


MAX_RECORDS = 40  # of each kind: enough for a median, and fast on an object store
ENCODED_PER_TRAINED = 3.0  # sentences in the same time: no backward pass, which takes twice as long as a forward pass


@dataclass(frozen=True, kw_only=True)
class KindForecast:
    """Forecast for the stages of one kind."""

    kind: str
    mentions: int  # by trials
    distinct: int
    finished: int
    sentences: int  # left to train on or encode; an upper bound: early stopping and repeated sentences reduce it
    sentences_per_s: float | None  # in this store; None if unknown

    @property
    def missing(self) -> int:
        return self.distinct - self.finished

    @property
    def seconds(self) -> float | None:
        """Work left (s), one stage after another; None if the speed is unknown."""
        if not self.missing:
            return 0.0
        if self.sentences_per_s is None:
            return None
        return self.sentences / self.sentences_per_s


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The finished stages of a plan in a store, and the work left."""

    kinds: tuple[KindForecast, ...]
    finished: frozenset[str]  # keys

    @property
    def saved(self) -> int:
        """Builds saved by sharing stages."""
        return sum(kind.mentions - kind.distinct for kind in self.kinds)

    @property
    def seconds(self) -> float | None:
        """All work left (s), one stage after another; None if the speed of a part is unknown."""
        known = [kind.seconds for kind in self.kinds if STAGES[kind.kind].speed_of is not None]
        return None if any(seconds is None for seconds in known) else sum(seconds for seconds in known if seconds is not None)

    @property
    def work_left(self) -> str:
        """A sentence on the work left, for users."""
        if not any(kind.missing for kind in self.kinds):
            return "Nothing to build."
        if self.seconds is None:
            return "How long that takes is not known yet: this store has no earlier training or bank to estimate from."
        return f"About {duration(max(1.0, self.seconds))} of work, one stage after another, at the speed of earlier runs in this store."


def forecast(plan: Plan, store: ArtifactStore) -> Forecast:
    """Find the finished stages of a plan and estimate the rest; reads only records.

    Raises:
        StoreError: the store cannot be read.
    """
    finished = frozenset(store.get_all(plan.stages))
    kinds = []
    for kind in STAGES.values():
        stages = [stage for stage in plan.stages if isinstance(stage, kind)]
        if not stages:
            continue
        left = [stage for stage in stages if stage.key not in finished]
        kinds.append(
            KindForecast(
                kind=kind.kind,
                mentions=sum(plan.mentions[stage.key] for stage in stages),
                distinct=len(stages),
                finished=len(stages) - len(left),
                sentences=sum(stage.num_sentences(plan.rows) for stage in left),
                sentences_per_s=speed_of(store, kind) if left else None,
            )
        )
    return Forecast(kinds=tuple(kinds), finished=finished)


def speed_of(store: ArtifactStore, kind: type[Stage]) -> float | None:
    """Return the median sentences per second of the finished stages that forecast a kind; None if there are none.

    Kinds that encode, without a bank, are `ENCODED_PER_TRAINED` times as fast as trainings.
    """
    if kind.speed_of is None:
        return None
    artifacts = itertools.islice(store.artifacts(kind.speed_of), MAX_RECORDS)
    rates = [rate for artifact in artifacts if (rate := artifact.record.number("sentences_per_s")) is not None and rate > 0]
    if rates or kind.speed_of != Bank.kind:
        return statistics.median(rates) if rates else None
    training = speed_of(store, Train)
    return None if training is None else ENCODED_PER_TRAINED * training


def plan_facts(plan: Plan, ahead: Forecast) -> dict[str, Json]:
    """Return a plan in numbers, for other programs. Seconds are at the speed of earlier runs in this store; None without them."""
    states = {stage.key: "built" if stage.key in ahead.finished else "missing" for stage in plan.stages}
    speeds = {kind.kind: kind.sentences_per_s for kind in ahead.kinds}
    stages: list[Json] = []
    for stage in plan.stages:
        sentences, speed = stage.num_sentences(plan.rows), speeds[stage.kind]
        about: dict[str, Json] = {name: getattr(stage, name) for name in ("key", "kind", "place")}
        about |= {"state": states[stage.key], "inputs": [one.key for one in stage.inputs], "mentions": plan.mentions[stage.key]}
        seconds = 0.0 if states[stage.key] == "built" else None if speed is None else sentences / speed
        stages.append(about | {"sentences": sentences, "seconds": seconds})
    trials: list[Json] = []
    for trial in plan.trials:
        known: dict[str, Json] = {name: getattr(trial, name) for name in ("name", "method", "seed", "fold", "key")}
        trials.append(known | {"params": dict(trial.params), "state": states[trial.key]})
    return {"recipe": plan.recipe.name, "trials": trials, "stages": stages, "seconds": ahead.seconds}
