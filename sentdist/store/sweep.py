"""Records of sweeps: recipe and trials as plain values, so that reports and dashboards need neither data nor planning."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from pydantic import BaseModel, ConfigDict

from sentdist.errors import StoreError, did_you_mean, listed
from sentdist.recipe.stage import Json, topological
from sentdist.recipe.stages import Train
from sentdist.recipe.unroll import Plan
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore


class TrialRecord(BaseModel):
    """One cell of the sweep."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str  # of the trial = of its scores
    method: str
    cell: str  # method and grid values: reports average over the trials of a cell
    name: str  # cell, seed and fold
    params: dict[str, Json]
    seed: int | None
    fold: int | None
    train: str | None  # key of the training whose encoder is scored; None for an untouched checkpoint
    stages: tuple[str, ...]  # keys of all stages that it needs, inputs first


class SweepRecord(BaseModel):
    """The content of `sweeps/NAME.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    about: str
    recipe: dict[str, Json]
    baseline: str | None
    paper: str | None
    trials: tuple[TrialRecord, ...]
    places: dict[str, str]  # key -> place of every stage

    @property
    def cells(self) -> dict[str, tuple[TrialRecord, ...]]:
        """The trials of each cell, in their order."""
        found: dict[str, tuple[TrialRecord, ...]] = {}
        for trial in self.trials:
            found[trial.cell] = (*found.get(trial.cell, ()), trial)
        return found

    @property
    def mentions(self) -> dict[str, int]:
        """Number of trials that need each stage: the builds without sharing."""
        counts = dict.fromkeys(self.places, 0)
        for trial in self.trials:
            for key in trial.stages:
                counts[key] += 1
        return counts

    def records(self, store: ArtifactStore) -> dict[str, Record]:
        """Return the records of its finished stages by key."""
        return {key: found.record for key, found in zip(self.places, store.each_at(self.places.values()), strict=True) if found is not None}


def method_title(recipe: Mapping[str, Json], name: str) -> str:
    """Return the title of a method in the tables of a recorded recipe."""
    methods = recipe["methods"]
    own = methods.get(name) if isinstance(methods, dict) else None
    return str((own.get("title") if isinstance(own, dict) else None) or name)


def with_all_folds(trials: Iterable[TrialRecord], finished: Container[str]) -> dict[tuple[str, int | None], tuple[TrialRecord, ...]]:
    """Return the trials of each cell and seed whose folds are all finished. finished: keys."""
    groups: dict[tuple[str, int | None], tuple[TrialRecord, ...]] = {}
    for trial in trials:
        groups[trial.cell, trial.seed] = (*groups.get((trial.cell, trial.seed), ()), trial)
    return {place: group for place, group in groups.items() if all(trial.key in finished for trial in group)}


def sweep_record(plan: Plan) -> SweepRecord:
    """Return the record of a plan."""
    return SweepRecord(
        name=plan.recipe.name,
        about=plan.recipe.about,
        recipe=plan.recipe.model_dump(mode="json", exclude_unset=True),
        baseline=plan.recipe.baseline,
        paper=plan.recipe.paper,
        trials=tuple(
            TrialRecord(
                key=trial.key,
                method=trial.method,
                cell=trial.cell,
                name=trial.name,
                params=dict(trial.params),
                seed=trial.seed,
                fold=trial.fold,
                train=trial.scores.encoder.key if isinstance(trial.scores.encoder, Train) else None,
                stages=tuple(stage.key for stage in topological((trial.scores,))),
            )
            for trial in plan.trials
        ),
        places={stage.key: stage.place for stage in plan.stages},
    )


def save_sweep(store: ArtifactStore, sweep: SweepRecord) -> str:
    """Write the record of a sweep, unless it is unchanged; return its address."""
    place, text = f"sweeps/{sweep.name}.json", sweep.model_dump_json(indent=1)
    return store.files.uri(place) if store.files.content(place) == text.encode() else store.files.write_text(place, text)


def begin_sweep(store: ArtifactStore, sweep: SweepRecord, tell: Callable[[str], None]) -> None:
    """Save a sweep; pass a line to `tell` if it replaces other finished trials."""
    if left_out := left_out_line(store, sweep):
        tell(left_out)
    save_sweep(store, sweep)


def left_out_line(store: ArtifactStore, sweep: SweepRecord) -> str | None:
    """Return a line if the store's sweep of that name has finished trials that this one lacks; None for none, and for a search.

    Trials of a search are its finalists, which change while it runs.

    Raises:
        StoreError: the store cannot be read.
    """
    try:
        before = load_sweep(store, sweep.name)
    except StoreError:  # none of that name, or a damaged one, which will be overwritten
        return None
    if "search" in sweep.recipe:
        return None
    keys = {trial.key for trial in sweep.trials}
    gone = [trial for trial in before.trials if trial.key not in keys]
    scored = store.each_at(before.places[trial.key] for trial in gone)
    cells = dict.fromkeys(trial.cell for trial, found in zip(gone, scored, strict=True) if found is not None)
    if not cells:
        return None
    return (
        f"{sweep.name} used to have other trials ({listed(list(cells))}): its report shows only the current ones. Artifacts stay in the "
        "store; a recipe with another `name` has a separate report."
    )


def sweep_names(store: ArtifactStore) -> list[str]:
    """Return the names of the sweeps that were started with this store."""
    return [name.removesuffix(".json") for name in store.files.names("sweeps") if name.endswith(".json")]


def _remedy(store: ArtifactStore, name: str) -> str:
    names = sweep_names(store)
    return did_you_mean(name, names, f"The store has {listed(names)}." if names else "Run `sentdist sweep RECIPE` first.")


def load_sweep(store: ArtifactStore, name: str) -> SweepRecord:
    """Read a sweep back.

    Raises:
        StoreError: no sweep of that name, or its file is damaged.
    """
    text = store.files.read_text(f"sweeps/{name}.json")
    if text is None:
        raise StoreError(
            where=f"{store.shown}: sweep {name}", found="nothing", expected="a sweep that was started", remedy=_remedy(store, name)
        )
    try:
        return SweepRecord.model_validate_json(text)
    except ValueError as error:  # pydantic's errors are ValueErrors
        raise StoreError(
            where=f"{store.shown}/sweeps/{name}.json",
            found=str(error).splitlines()[0],
            expected="the record written at the start of the sweep",
            remedy="Run `sentdist sweep` with its recipe again: it rewrites this file and rebuilds nothing.",
        ) from None
