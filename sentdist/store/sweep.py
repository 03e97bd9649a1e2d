"""Records of sweeps (recipe and trials as plain values), the cells that dev scores choose, and the recipe that confirms them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict

from sentdist.errors import StoreError, counted, did_you_mean, listed
from sentdist.recipe.dotted import with_path
from sentdist.recipe.recipe import Recipe, recipe_from_values
from sentdist.recipe.sections import CHANGED_BY_METHODS, Method, inputs_of
from sentdist.recipe.stage import Json, topological
from sentdist.recipe.stages import Train
from sentdist.recipe.unroll import Plan
from sentdist.store.record import Record, restored
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


MOST_EQUAL = 3  # cells that a line names


@dataclass(frozen=True, kw_only=True)
class DevCell:
    """A cell whose trainings were all selected on a dev task."""

    label: str
    task: str  # the dev task, as in a recipe
    dev: float  # mean of the best dev scores (× 100)
    trials: tuple[TrialRecord, ...]  # in the order of the sweep
    best: TrialRecord  # the trial with the highest dev score
    equal: tuple[str, ...] = ()  # labels of later cells with the same score

    @property
    def line(self) -> str:
        """The cell and its dev score, as a phrase."""
        more = f" and {len(self.equal) - MOST_EQUAL} more" if len(self.equal) > MOST_EQUAL else ""
        equal = f", as high as {', '.join(self.equal[:MOST_EQUAL])}{more}: the first of them is taken" if self.equal else ""
        return f"{self.label}, {self.task} {self.dev:.2f} (mean of {counted(len(self.trials), 'training')}){equal}"


def cells_by_dev(sweep: SweepRecord, records: Mapping[str, Record]) -> list[DevCell]:
    """Return the cells that can be compared on dev, best mean first; equal ones in the order of the sweep.

    A cell counts if all its trials are scored and all their trainings were selected on dev. Only cells with the same dev tasks can be
    compared: if a sweep has several dev tasks, the cells of the most frequent one are returned.
    """
    found: list[DevCell] = []
    for label, trials in sweep.cells.items():
        chosen_by = {trial.key: by for trial in trials if (by := dev_score(trial, records)) is not None}
        if len(chosen_by) == len({trial.key for trial in trials}):
            found.append(
                DevCell(
                    label=label,
                    task=" and ".join(sorted({task for task, _ in chosen_by.values()})),
                    dev=statistics.fmean(chosen_by[trial.key][1] for trial in trials),
                    trials=trials,
                    best=max(trials, key=lambda trial: chosen_by[trial.key][1]),
                )
            )
    if not found:
        return []
    ((task, _),) = Counter(cell.task for cell in found).most_common(1)
    ranked = sorted((cell for cell in found if cell.task == task), key=lambda cell: -cell.dev)
    return [replace(ranked[0], equal=tuple(cell.label for cell in ranked[1:] if cell.dev == ranked[0].dev)), *ranked[1:]]


def challengers(sweep: SweepRecord, records: Mapping[str, Record]) -> list[DevCell]:
    """Return `cells_by_dev` without the baseline's cells."""
    return [cell for cell in cells_by_dev(sweep, records) if cell.trials[0].method != sweep.baseline]


def chosen_of_baseline(sweep: SweepRecord, records: Mapping[str, Record]) -> DevCell | None:
    """Return the best cell of the baseline on dev; None if no cell of it counts."""
    return next((cell for cell in cells_by_dev(sweep, records) if cell.trials[0].method == sweep.baseline), None)


def dev_score(trial: TrialRecord, records: Mapping[str, Record]) -> tuple[str, float] | None:
    """Return the dev tasks that chose the weights of a scored trial, and their score (× 100); None without selection."""
    train = restored(trial.train, records)
    if not isinstance(train, Train) or train.selection is None or trial.key not in records:
        return None
    score = records[train.key].dev_score
    return None if score is None else (train.selection.name, score)


def dev_chooses(sweep: SweepRecord) -> bool:
    """Return whether the recipe of a sweep has a selection."""
    return bool(sweep.recipe.get("selection"))


def confirmed_name(sweep: str) -> str:
    """Return the name of the confirmation sweep."""
    return f"{sweep[:90]}-confirmed"  # names have at most 100 characters


def confirmation(sweep: SweepRecord, records: Mapping[str, Record]) -> Recipe | None:
    """Return the recipe that trains the best cell and the best baseline again with `confirm_seeds` new seeds; None if there is none.

    The baseline gets the grid values chosen for it, if methods can have separate values; else those of the cell. Methods that these two
    need stay, unreported.
    """
    recipe = recipe_from_values(sweep.recipe, where=f"sweep {sweep.name}")
    cells = challengers(sweep, records) if recipe.confirm_seeds else []
    if not cells:
        return None
    choice, trial = cells[0], cells[0].trials[0]
    rival = chosen_of_baseline(sweep, records)
    theirs = {} if rival is None else rival.trials[0].params
    own = None if rival is None else _own_fields(recipe.methods, rival.trials[0], beside=trial)
    values = dict(sweep.recipe)
    for path, value in {**theirs, **trial.params, **(own or {})}.items():
        values = with_path(values, path, value, where=f"sweep.{path}")
    first = max(recipe.seeds) + 1
    methods: Json = {
        name: method.model_dump(mode="json", exclude_unset=True) | {"reported": name in (trial.method, sweep.baseline)}
        for name, method in recipe_from_values(values, where=f"sweep {sweep.name}").methods.items()
    }
    about = f"{choice.label}, best on dev of {counted(len(cells), 'cell')} of {sweep.name} beside the baseline"
    also = f", and {rival.label}, best of the baseline's" if rival is not None and theirs and own is not None else ""
    values |= {
        "name": confirmed_name(sweep.name),
        "about": f"{about}{also}, with seeds that chose nothing.",
        "methods": methods,
        "headline": trial.method,
        "seeds": list(range(first, first + recipe.confirm_seeds)),
        "sweep": {},
        "confirm_seeds": 0,
    }
    return recipe_from_values(values, where=f"sweep {sweep.name}, confirmed")


def _own_fields(methods: Mapping[str, Method], baseline: TrialRecord, *, beside: TrialRecord) -> dict[str, Json] | None:
    """Return the fields of a recipe that set the grid values of the baseline's trial where they differ from another method's trial.

    None if that is impossible: both need a method, or methods cannot change the section (a corpus). The fields change all methods that the
    baseline needs, except those that set the value themselves.
    """
    needed = inputs_of(baseline.method, methods)
    apart = needed.isdisjoint(inputs_of(beside.method, methods))
    found: dict[str, Json] = {}
    for path, value in baseline.params.items():
        section, _, field = path.partition(".")
        if beside.params.get(path, value) == value:
            continue
        if not apart or section not in CHANGED_BY_METHODS:
            return None
        heirs = (name for name in sorted(needed) if methods[name].objective is not None and field not in getattr(methods[name], section))
        found |= {f"methods.{name}.{path}": value for name in heirs}
    return found
