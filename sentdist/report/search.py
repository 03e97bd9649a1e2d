"""The section of a report on a search: trials, what was pruned, budget used, finalists and the optimism of choosing on dev."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sentdist.errors import counted, duration
from sentdist.evaluation.significance import Optimism, optimism
from sentdist.recipe.dotted import short_names
from sentdist.recipe.search import Search
from sentdist.recipe.stage import Json
from sentdist.recipe.wording import value_text
from sentdist.report.comparisons import distance
from sentdist.report.page_head import scored as score_of
from sentdist.report.page_head import verdicts
from sentdist.report.tables import ResultTable
from sentdist.report.templating import Block
from sentdist.store.record import Record
from sentdist.store.searches import Finalist, SearchRecord, SearchTrial
from sentdist.store.sweep import SweepRecord, cells_by_dev, dev_score, method_title
from sentdist.text import csv_text

MOST_TRIALS = 20  # in the table, best first; search-trials.csv has all
FINALISTS_HEADER = ("method", "chosen on dev", "dev in the search", "dev, new seeds", "optimism of the choice", "test")
BUDGET_HEADER = ("method", "trials", "finished", "pruned", "failed", "running", "sentences", "time", "best dev")
TRIALS_HEADER = ("method", "settings", "state", "trial", "dev", "sentences")


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
    chosen: ScoredFinalist | None

    @property
    def best(self) -> SearchTrial | None:
        """The best of the finished trials."""
        return max((one for one in self.trials if one.state == "finished"), key=lambda one: one.dev or 0.0, default=None)


@dataclass(frozen=True, kw_only=True)
class SearchFacts:
    """A search with its methods, in the order of the recipe."""

    record: SearchRecord
    search: Search
    methods: tuple[SearchedMethod, ...]
    num_seeds: int

    @cached_property
    def short(self) -> dict[str, str]:
        """Field of the space -> its short name in tables."""
        return short_names(method.fields for method in self.methods)

    def settings(self, suggestion: Mapping[str, Json], method: SearchedMethod) -> str:
        """Return the values of a suggestion that affect its method, in words."""
        named = (f"{self.short[field]} {value_text(suggestion[field])}" for field in method.fields if field in suggestion)
        return ", ".join(named) or "its own values"

    def chosen_cell(self, method: str | None) -> str | None:
        """Return the row of the finalist that dev chose for a method; None if there is none."""
        return next((one.chosen.cell for one in self.methods if one.name == method and one.chosen is not None), None)


@dataclass(frozen=True, kw_only=True)
class SearchPart:
    """The parts of a page that come from the search.

    Args:
        lead: the findings, in sentences.
        headline: the row that they are about; "" if none is scored.
        files: name -> content.
        works: keys of citations.
    """

    lead: tuple[str, ...]
    headline: str
    block: Block
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    works: tuple[str, ...] = ()


def search_facts(record: SearchRecord, sweep: SweepRecord | None, records: Mapping[str, Record]) -> SearchFacts:
    """Collect the facts from the sweep of the finalists (None: not there yet) and the records of its finished stages."""
    ranked = [] if sweep is None else [cell.label for cell in cells_by_dev(sweep, records)]
    seeds = record.recipe.get("seeds", [0])
    assert isinstance(seeds, list) and seeds
    found = []
    for name, fields in record.methods.items():
        finalists = [_scored(one, sweep, records, searched_seed=int(str(seeds[0]))) for one in record.finalists if one.method == name]
        trials = list(record.of_method(name))
        ended = tuple(trial for trial in trials if trial.state != "running")
        title = method_title(record.recipe, name)
        found.append(
            SearchedMethod(
                name=name, title=title, fields=fields, trials=ended, num_running=len(trials) - len(ended), chosen=_chosen(finalists, ranked)
            )
        )
    return SearchFacts(
        record=record, search=Search.model_validate(record.recipe["search"]), methods=tuple(found), num_seeds=len(seeds)
    )  # fmt: skip


def _scored(finalist: Finalist, sweep: SweepRecord | None, records: Mapping[str, Record], *, searched_seed: int) -> ScoredFinalist:
    trials = () if sweep is None else sweep.trials
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


def search_part(facts: SearchFacts, table: ResultTable | None) -> SearchPart:
    """Build all parts. table: test scores of the finalists, None until one is scored."""
    best = next(iter(scored_choices(facts, table)), None)
    block = Block(
        title="Search", said=tuple(_found(facts, table)),
        tables=(
            (FINALISTS_HEADER, [_finalist_row(facts, method, table) for method in facts.methods]),
            (BUDGET_HEADER, _budget_rows(facts)),
            (TRIALS_HEADER, list(_trial_rows(facts))[:MOST_TRIALS]),
        ),
    )  # fmt: skip
    return SearchPart(
        lead=lead(facts, table), headline="" if best is None or best.chosen is None else str(best.chosen.cell), block=block,
        files={"search-trials.csv": trials_csv(facts)}, works=tuple(_works(facts)),
    )  # fmt: skip


def _works(facts: SearchFacts) -> Iterator[str]:
    """Keys of citations for the search and its sentences."""
    yield from ("halving",) if facts.search.halving else ()
    yield "tune"
    yield from ("tpe", "optuna") if facts.search.suggest == "tpe" else ()
    yield from ("selection_bias",) if any(method.chosen and method.chosen.optimism for method in facts.methods) else ()


def lead(facts: SearchFacts, table: ResultTable | None) -> tuple[str, ...]:
    """Summarize how the trials that dev chose compare, and by what budget they were chosen."""
    counts = [len(method.trials) + method.num_running for method in facts.methods]
    each = str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
    of = f"each of {len(facts.methods)} methods" if len(counts) > 1 else facts.methods[0].title
    tried = f"after {each} trial{'' if max(counts) == 1 else 's'} of {of}"
    scored = scored_choices(facts, table)
    if table is None or not scored:
        known = [(method.best, method) for method in facts.methods if method.best is not None]
        if not known:
            return (f"{tried.capitalize()} none has run to its end yet.",)
        best, method = max(known, key=lambda one: one[0].dev or 0.0)
        settings = f"{method.title} ({facts.settings(best.suggestion, method)})"
        return (f"The best dev score {tried} is {best.dev:.2f}, by {settings}; nothing is scored on test yet.",)
    chosen = [table.line(str(method.chosen.cell)) for method in scored if method.chosen is not None]
    said = verdicts(table, [*(line.label for line in chosen), *(line.label for line in table.lines if line.is_fixed)])
    unequal = " The methods had unequal numbers of trials, which favours those with more." if len(set(counts)) > 1 else ""
    return (
        *(said or [f"{score_of(chosen[0], table)}."]),
        f"The settings were chosen on dev {tried}.{unequal}",
    )


def scored_choices(facts: SearchFacts, table: ResultTable | None) -> list[SearchedMethod]:
    """Return the methods with a chosen trial, best on dev first; [] until all of them have a row in the table."""
    chosen = [method for method in facts.methods if method.chosen is not None]
    rows = set() if table is None else {line.label for line in table.lines}
    if not all(method.chosen is not None and method.chosen.cell in rows for method in chosen):
        return []

    def dev(method: SearchedMethod) -> float:
        assert method.chosen is not None
        return statistics.fmean(method.chosen.dev.values()) if method.chosen.dev else method.chosen.finalist.dev

    return sorted(chosen, key=dev, reverse=True)


def _found(facts: SearchFacts, table: ResultTable | None) -> Iterator[str]:
    record, halving = facts.record, facts.search.halving
    over = "The search is not over: these results may change." if record.reason is None else f"The search is over: {record.reason}."
    yield f"{over} It used {duration(record.spent_s)} and {record.spent_sentences:,} sentences."
    if halving is not None:
        shares = " and ".join(f"{100 * share:.0f} %" for share in halving.rungs[:-1])
        yield f"After {shares} of a training the best {100 * halving.keep:.0f} % of each method go on; the others are pruned."
    yield from optimism_sentences(facts)
    if table is not None:
        yield from _untouched(facts, table)
        yield "Test scores are means over all seeds of the finalists; the first of these seeds took part in choosing, test scores did not."


def optimism_sentences(facts: SearchFacts) -> Iterator[str]:
    """Yield how much of the winning score was luck, a sentence per method."""
    known = {method.title: method.chosen.optimism for method in facts.methods if method.chosen and method.chosen.optimism}
    if not known and facts.num_seeds == 1:
        yield "The optimism of choosing on dev is not known: the recipe has one seed. With several `seeds` the finalists measure it."
    for title, found in known.items():
        interval = "" if found.low is None else f" (95 % interval {found.low:+.2f} to {found.high:+.2f})"
        yield (
            f"{title}: {found.chosen_by:.2f} on dev won the search, {counted(found.num_fresh, 'new seed')} of the same settings give "
            f"{found.fresh:.2f}: {found.points:+.2f} points of optimism{interval}"
            f"{'' if found.is_significant else ', not distinguished from 0'}."
        )
    if known:
        yield (
            "Optimism is the luck of the seed that won (Cawley & Talbot 2010). New seeds share the luck of the dev sentences; "
            "only the test is free of it."
        )


def _untouched(facts: SearchFacts, table: ResultTable) -> Iterator[str]:
    """A sentence for each method whose chosen trial is below an untrained encoder on test."""
    scores = {line.label: summary.mean for line in table.lines if (summary := line.cells[table.lead].summary) is not None}
    fixed = {line.label: scores[line.label] for line in table.lines if line.is_fixed and line.label in scores}
    for method in facts.methods:
        chosen = None if method.chosen is None else scores.get(str(method.chosen.cell))
        better = max(fixed, key=lambda label: fixed[label], default=None)
        if chosen is not None and better is not None and fixed[better] > chosen:
            apart = distance(fixed[better] - chosen, f"what dev chose for {method.title}")
            yield f"{better}, which was not trained, scores {fixed[better]:.2f} on test: {apart}."


def _finalist_row(facts: SearchFacts, method: SearchedMethod, table: ResultTable | None) -> list[str]:
    """The row under FINALISTS_HEADER; before there are finalists, of the best trial so far."""
    if method.chosen is None:
        best = method.best
        settings, dev = ("nothing yet", "–") if best is None else (facts.settings(best.suggestion, method), f"{best.dev:.2f}")
        return [method.title, settings, dev, "–", "–", "–"]
    chosen, found = method.chosen, method.chosen.optimism
    line = None if table is None else next((line for line in table.lines if line.label == chosen.cell), None)
    cell = None if table is None or line is None else line.cells[table.lead]
    spread = "" if cell is None or cell.sd is None else f" ± {cell.sd:.2f}"
    interval = "" if found is None or found.low is None else f" [{found.low:+.2f}, {found.high:+.2f}]"
    return [
        method.title,
        facts.settings(chosen.finalist.suggestion, method),
        f"{chosen.finalist.dev:.2f}",
        "–" if found is None else f"{found.fresh:.2f} (n={found.num_fresh})",
        "–" if found is None else f"{found.points:+.2f}{interval}",
        "–" if cell is None or cell.summary is None else f"{cell.summary.mean:.2f}{spread}",
    ]


def _budget_rows(facts: SearchFacts) -> list[list[str]]:
    """The rows under BUDGET_HEADER; trainings count in full although some were in the store already."""
    rows = []
    for method in facts.methods:
        states = [trial.state for trial in method.trials]
        rows.append(
            [
                method.title,
                str(len(states) + method.num_running),
                *(str(states.count(state)) for state in ("finished", "pruned", "failed")),
                str(method.num_running),
                f"{sum(trial.sentences for trial in method.trials):,}",
                duration(sum(trial.seconds for trial in method.trials)),
                "–" if method.best is None else f"{method.best.dev:.2f}",
            ]
        )
    return rows


def _trial_rows(facts: SearchFacts) -> Iterator[list[str]]:
    """Yield the rows under TRIALS_HEADER: finished trials best first, then pruned and failed ones by their last dev score."""
    trials = [(trial, method) for method in facts.methods for trial in method.trials]
    for trial, method in sorted(trials, key=lambda one: (one[0].state != "finished", -(one[0].dev or 0.0))):
        state = f"{trial.state}: {trial.error}" if trial.error else trial.state
        dev = "–" if trial.dev is None else f"{trial.dev:.2f}"
        yield [method.title, facts.settings(trial.suggestion, method), state, str(trial.number), dev, f"{trial.sentences:,}"]


def trials_csv(facts: SearchFacts) -> str:
    """Return a CSV with a line per trial: settings, state, best dev score at each rung, costs."""
    fields, shares = list(facts.search.space), facts.search.shares
    dev = (f"dev at {share:g}" for share in shares)
    rows: list[list[object]] = [["trial", "method", "state", *fields, *dev, "sentences", "seconds", "error"]]
    for trial in sorted(facts.record.trials, key=lambda trial: trial.number):
        at = {rung.share: rung.dev for rung in trial.rungs}
        values = [value_text(trial.suggestion[field]) if field in trial.suggestion else "" for field in fields]
        cost = [trial.sentences, f"{trial.seconds:.1f}"]
        shown = [f"{at[share]:.4f}" if share in at else "" for share in shares]
        rows.append([trial.number, trial.method, trial.state, *values, *shown, *cost, trial.error or ""])
    return csv_text(rows)
