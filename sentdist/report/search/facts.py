"""Collect the facts on a search from its record and the records of its finalists."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sentdist.evaluation.search_statistics import Floats, Optimism, optimism
from sentdist.plan.dotted import short_names
from sentdist.plan.search import Axis, Search
from sentdist.plan.stage import Json
from sentdist.plan.wording import value_text
from sentdist.store.chosen import cells_by_dev, dev_score
from sentdist.store.record import Record
from sentdist.store.searches import Finalist, SearchRecord, SearchTrial
from sentdist.store.sweep import SweepRecord, TrialRecord, method_title


@dataclass(frozen=True, kw_only=True)
class ScoredFinalist:
    """A finalist with the scores of its seeds so far.

    Args:
        cell: label of its row in tables of test scores; None until one seed is scored.
        dev: seed -> best dev score (× 100) of the scored seeds.
        optimism: of its score in the search, measured by seeds that the search did not use.
    """

    finalist: Finalist
    cell: str | None
    dev: Mapping[int, float]
    optimism: Optimism | None

    @property
    def mean_dev(self) -> float | None:
        return statistics.fmean(self.dev.values()) if self.dev else None


@dataclass(frozen=True, kw_only=True)
class SearchedMethod:
    """One method of a search.

    Args:
        fields: fields of the search space that affect it.
        trials: trials that have ended, in that order.
        chosen: finalist that dev chose, by all seeds once all are scored, else by the search.
    """

    name: str
    title: str
    fields: tuple[str, ...]
    trials: tuple[SearchTrial, ...]
    num_running: int
    finalists: tuple[ScoredFinalist, ...]
    chosen: ScoredFinalist | None

    def count(self, state: str) -> int:
        return sum(trial.state == state for trial in self.trials)

    @property
    def scored(self) -> tuple[SearchTrial, ...]:
        """Trials with a dev score, including pruned ones."""
        return tuple(trial for trial in self.trials if trial.dev is not None)

    @property
    def best(self) -> SearchTrial | None:
        """The best of the finished trials."""
        return max((trial for trial in self.scored if trial.state == "finished"), key=lambda trial: trial.dev or 0.0, default=None)

    @property
    def scores(self) -> Floats:
        """(N,) dev scores of all trials; a trial without a score gets the lowest of its method, since it was paid for."""
        known = [trial.dev for trial in self.scored if trial.dev is not None]
        lowest = min(known, default=0.0)
        return np.array([lowest if trial.dev is None else trial.dev for trial in self.trials], dtype=np.float64)

    @property
    def costs(self) -> Floats:
        """(N,) sentences of each trial."""
        return np.array([sentences(trial) for trial in self.trials], dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class SearchFacts:
    """A search with its methods, in the order of the recipe."""

    record: SearchRecord
    search: Search
    methods: tuple[SearchedMethod, ...]
    num_seeds: int

    @cached_property
    def short(self) -> dict[str, str]:
        """Field of the space -> its short name in tables and axes."""
        return short_names(method.fields for method in self.methods)

    def axis(self, field: str) -> Axis:
        return self.search.space[field]

    def settings(self, suggestion: Mapping[str, Json], method: SearchedMethod) -> str:
        """Return the values of a suggestion that affect its method, in words."""
        return (
            ", ".join(f"{self.short[field]} {value_text(suggestion[field])}" for field in method.fields if field in suggestion)
            or "its own values"
        )

    def num_settings(self, method: SearchedMethod) -> int | None:
        """Return the number of different suggestions of a method; None if it is infinite."""
        return self.search.size(method.fields)

    def is_exhausted(self, method: SearchedMethod) -> bool:
        """Return whether all possible settings of a method were tried."""
        return len(method.trials) == self.num_settings(method)

    def chosen_cell(self, method: str | None) -> str | None:
        """Return the row of the finalist that dev chose for a method; None if there is none."""
        return next((one.chosen.cell for one in self.methods if one.name == method and one.chosen is not None), None)

    @property
    def has_equal_budgets(self) -> bool:
        """Whether all methods had the same number of trials, exhausted methods aside."""
        return len({len(method.trials) + method.num_running for method in self.methods if not self.is_exhausted(method)}) <= 1


def search_facts(record: SearchRecord, sweep: SweepRecord | None, records: Mapping[str, Record]) -> SearchFacts:
    """Collect the facts from the sweep of the finalists (None: not there yet) and the records of its finished stages."""
    ranked = [] if sweep is None else [cell.label for cell in cells_by_dev(sweep, records)]
    seeds = record.recipe.get("seeds", [0])
    assert isinstance(seeds, list) and seeds
    found = []
    for name, fields in record.methods.items():
        finalists = tuple(_scored(one, sweep, records, searched_seed=int(str(seeds[0]))) for one in record.finalists if one.method == name)
        found.append(
            SearchedMethod(
                name=name,
                title=method_title(record.recipe, name),
                fields=fields,
                trials=tuple(trial for trial in record.of_method(name) if trial.state != "running"),
                num_running=sum(trial.state == "running" for trial in record.of_method(name)),
                finalists=finalists,
                chosen=_chosen(finalists, ranked),
            )
        )
    return SearchFacts(
        record=record, search=Search.model_validate(record.recipe["search"]), methods=tuple(found), num_seeds=len(seeds)
    )  # fmt: skip


def sentences(trial: SearchTrial) -> int:
    """Return the cost of a trial: sentences of its training or, if more, all it had to train on (including entropy encoders).

    Trainings that were already in the store count in full; otherwise methods that were tried before would look cheap.
    """
    return max(trial.rungs[-1].sentences if trial.rungs else 0, trial.paid_sentences)


def shown(value: Json) -> str:
    """Return a value of the space as axes show it."""
    if isinstance(value, list | tuple):
        return "{" + ", ".join(map(shown, value)) + "}"
    return re.sub(r"e([+-])0", r"e\1", f"{value:.3g}") if isinstance(value, float) else str(value)


def _scored(finalist: Finalist, sweep: SweepRecord | None, records: Mapping[str, Record], *, searched_seed: int) -> ScoredFinalist:
    trials: Sequence[TrialRecord] = () if sweep is None else sweep.trials
    own = [trial for trial in trials if trial.key in finalist.cells.values() and trial.key in records]
    dev = {trial.seed: by[1] for trial in own if trial.seed is not None and (by := dev_score(trial, records)) is not None}
    fresh = [score for seed, score in dev.items() if seed != searched_seed]
    return ScoredFinalist(
        finalist=finalist, cell=own[0].cell if own else None, dev=dev, optimism=optimism(finalist.dev, fresh) if fresh else None
    )


def _chosen(finalists: Sequence[ScoredFinalist], ranked: Sequence[str]) -> ScoredFinalist | None:
    """The finalist with the best mean dev score over seeds, if all are scored; else the best of the search."""
    if finalists and all(one.cell in ranked for one in finalists):
        return min(finalists, key=lambda one: ranked.index(str(one.cell)))
    return min(finalists, key=lambda one: one.finalist.place, default=None)
