"""Build the parts of a search's page besides the score tables: findings, budgets, importances, failed trials, CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sentdist.errors import counted, duration
from sentdist.plan.wording import value_text
from sentdist.report.comparisons import distance
from sentdist.report.page_head import scored as score_of
from sentdist.report.page_head import standing, verdicts
from sentdist.report.search.budgets import best_drawing, budget_header, budget_rows, budget_sentence, count_text, price_drawing
from sentdist.report.search.facts import ScoredFinalist, SearchedMethod, SearchFacts, sentences
from sentdist.report.search.parallel import NO_OPTUNA, importance_drawing, importance_sentences, method_importances, parallel_drawing
from sentdist.report.style import Drawing, SystemStyles, styles_of
from sentdist.report.tables import ResultTable
from sentdist.report.templating import Block
from sentdist.store.searches import SearchTrial
from sentdist.text import csv_text

MOST_FAILED = 20
CHOSEN_HEADER = ("method", "what dev chose", "dev in the search", "dev, fresh seeds", "optimism of the choice", "test")
SPENT_HEADER = ("method", "trials", "finished", "pruned", "failed", "running", "sentences", "work", "best dev")


@dataclass(frozen=True, kw_only=True)
class SearchPart:
    """The parts of a page that come from the search.

    Args:
        lead: the findings, in sentences.
        headline: the row that they are about; "" if none is scored.
        first: blocks before the tables of test scores, `rest`: after them.
        files: name -> content.
        facts: name -> value, for the head of the page.
        works: keys of citations.
    """

    lead: tuple[str, ...]
    headline: str
    first: tuple[Block, ...] = ()
    rest: tuple[Block, ...] = ()
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    works: tuple[str, ...] = ()


def search_part(facts: SearchFacts, table: ResultTable | None, *, dev_unit: str, links: Mapping[str, str]) -> SearchPart:
    """Build all parts. table: test scores of the finalists, None until one is scored; links: name -> URL of other pages."""
    styles = styles_of(method.title for method in facts.methods)
    rest = [*_budget_blocks(facts, dev_unit, styles), *_field_blocks(facts, styles), *_failed_blocks(facts)]
    files: dict[str, str | bytes] = {"search-trials.csv": trials_csv(facts)}
    for block in rest:
        for one in block.drawings:
            files |= {f"{one.name}.svg": one.svg, f"{one.name}.png": one.png, f"{one.name}.csv": one.table}
    first = Block(
        title="What the search found", said=tuple(_found(facts, table)), header=CHOSEN_HEADER, rows=_chosen_rows(facts, table), links=links
    )
    best = next(iter(scored_choices(facts, table)), None)
    return SearchPart(
        lead=lead(facts, table), headline="" if best is None or best.chosen is None else str(best.chosen.cell), first=(first,),
        rest=tuple(rest), files=files, facts=_page_facts(facts), works=tuple(_works(facts, files)),
    )  # fmt: skip


def _works(facts: SearchFacts, files: Mapping[str, object]) -> Iterator[str]:
    """Keys of citations for the search, its figures and its sentences."""
    yield from ("halving",) if facts.search.halving else ()
    yield "tune"
    yield from ("tpe", "optuna") if facts.search.suggest == "tpe" else ()
    yield from ("best_of", "best_of_unbiased") if any(method.scored for method in facts.methods) else ()
    yield from ("selection_bias",) if any(method.chosen and method.chosen.optimism for method in facts.methods) else ()
    yield from ("ped_anova", "fanova", "optuna") if "search-importance.svg" in files else ()


def lead(facts: SearchFacts, table: ResultTable | None) -> tuple[str, ...]:
    """Summarize how the trials that dev chose compare, and by what budget they were chosen."""
    tried, scored = _budget_words(facts), scored_choices(facts, table)
    if table is None or not scored:
        known = [method for method in facts.methods if method.best is not None]
        if not known:
            return (f"{tried}; none has run to its end yet.",)
        best = max(known, key=lambda method: (method.best.dev or 0.0) if method.best else 0.0)
        assert best.best is not None
        settings = facts.settings(best.best.suggestion, best)
        return (f"{tried}; the best dev score so far is {best.best.dev:.2f}, by {best.title} ({settings}); nothing is scored on test yet.",)
    chosen = [table.line(str(method.chosen.cell)) for method in scored if method.chosen is not None]
    said = verdicts(table, [*(line.label for line in chosen), *(line.label for line in table.lines if line.is_fixed)])
    return (
        *(said or [f"{score_of(chosen[0], table)}{standing(chosen[0], table)}."]),
        f"The settings were chosen on dev {tried[:1].lower()}{tried[1:]}.",
    )


def scored_choices(facts: SearchFacts, table: ResultTable | None) -> list[SearchedMethod]:
    """Return the methods with a chosen trial, best on dev first; [] until all of them have a row in the table."""
    chosen = [method for method in facts.methods if method.chosen is not None]
    rows = set() if table is None else {line.label for line in table.lines}
    if not all(method.chosen is not None and method.chosen.cell in rows for method in chosen):
        return []
    return sorted(chosen, key=lambda method: -(method.chosen.mean_dev or method.chosen.finalist.dev) if method.chosen else 0.0)


def _budget_words(facts: SearchFacts) -> str:
    counts = sorted({len(method.trials) + method.num_running for method in facts.methods})
    each = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts[0] else f"up to {counts[-1]}"
    noun = "trial" if counts[-1] == 1 else "trials"
    return f"After {each} {noun}" + (
        f" of each of {len(facts.methods)} methods" if len(facts.methods) > 1 else f" of {facts.methods[0].title}"
    )


def _found(facts: SearchFacts, table: ResultTable | None) -> Iterator[str]:
    if facts.record.reason is None:
        yield "The search is not over: these results may change."
    else:
        yield f"The search is over: {facts.record.reason}."
    yield from _optimism(facts)
    if table is not None:
        yield from _untouched(facts, table)
        yield "Test scores are means over all seeds of the finalists; the first of these seeds took part in choosing, test scores did not."


def _optimism(facts: SearchFacts) -> Iterator[str]:
    """How much of the winning score was luck: a sentence per method if significant, one for all others."""
    known = {method.title: method.chosen.optimism for method in facts.methods if method.chosen and method.chosen.optimism}
    if not known:
        if facts.num_seeds == 1:
            yield "The optimism of choosing on dev is not known: the recipe has one seed. With several `seeds` the finalists measure it."
        return
    lucky = {title: found for title, found in known.items() if found.is_significant}
    for title, found in lucky.items():
        yield (
            f"{title}: {found.chosen_by:.2f} won the search, and {counted(found.num_fresh, 'fresh seed')} of the same settings give "
            f"{found.fresh:.2f} on dev: {found.points:+.2f} points of optimism (95 % interval {found.low:+.2f} to {found.high:+.2f})."
        )
    others = {title: found.points for title, found in known.items() if title not in lucky}
    if others:
        most = max(others, key=lambda title: others[title])
        whose = " and ".join(others) if len(others) < 3 else f"{'the others' if lucky else 'all methods'}"
        where = "" if len(others) == 1 else f" at most ({most})"
        yield (
            f"For {whose} fresh seeds of what dev chose do not distinguish the optimism of the choice from 0: it is "
            f"{others[most]:+.2f} points{where}."
        )
    yield (
        "Optimism is the luck of the seed that won (Cawley & Talbot 2010). Fresh seeds share the luck of the dev sentences; "
        "only the test is free of it."
    )


def _untouched(facts: SearchFacts, table: ResultTable) -> Iterator[str]:
    """A sentence for each method whose chosen trial is below an untrained encoder on test."""
    column = table.lead
    scores = {line.label: summary.mean for line in table.lines if (summary := line.cells[column].summary) is not None}
    fixed = {line.label: scores[line.label] for line in table.lines if line.is_fixed and line.label in scores}
    for method in facts.methods:
        chosen = None if method.chosen is None else scores.get(str(method.chosen.cell))
        better = max(fixed, key=lambda label: fixed[label], default=None)
        if chosen is not None and better is not None and fixed[better] > chosen:
            apart = distance(fixed[better] - chosen, f"what dev chose for {method.title}")
            yield f"{better}, which was not trained, scores {fixed[better]:.2f} on test: {apart}."


def _chosen_rows(facts: SearchFacts, table: ResultTable | None) -> list[list[str]]:
    """The rows under CHOSEN_HEADER; before there are finalists, of the best trials so far."""
    rows = []
    for method in facts.methods:
        if method.chosen is None:
            best = method.best
            settings = "nothing yet" if best is None else facts.settings(best.suggestion, method)
            rows.append([method.title, settings, "–" if best is None else f"{best.dev:.2f}", "–", "–", "–"])
            continue
        rows.append([method.title, facts.settings(method.chosen.finalist.suggestion, method), *_scores(method.chosen, table)])
    return rows


def _scores(chosen: ScoredFinalist, table: ResultTable | None) -> list[str]:
    found = chosen.optimism
    line = None if table is None else next((line for line in table.lines if line.label == chosen.cell), None)
    cell = None if table is None or line is None else line.cells[table.lead]
    summary = None if cell is None else cell.summary
    spread = "" if cell is None or cell.sd is None else f" ± {cell.sd:.2f}"
    return [
        f"{chosen.finalist.dev:.2f}",
        "–" if found is None else f"{found.fresh:.2f} (n={found.num_fresh})",
        "–" if found is None else f"{found.points:+.2f}" + ("" if found.low is None else f" [{found.low:+.2f}, {found.high:+.2f}]"),
        "–" if summary is None else f"{summary.mean:.2f}{spread}",
    ]


def _budget_blocks(facts: SearchFacts, dev_unit: str, styles: SystemStyles) -> Iterator[Block]:
    if any(method.scored for method in facts.methods):
        said = [one for one in (budget_sentence(facts),) if one]
        if not facts.has_equal_budgets:
            said.append("The methods had unequal numbers of trials: compare them at one number, not at their ends.")
        said += [
            f"{method.title} has {counted(len(method.trials), 'different setting')}, all tried: more trials cannot improve it."
            for method in facts.methods
            if facts.is_exhausted(method)
        ]
        yield Block(
            title="Who wins at which budget", said=said, header=budget_header(facts), rows=budget_rows(facts),
            drawings=[best_drawing(facts, dev_unit=dev_unit, styles=styles)],
        )  # fmt: skip
    rows = [_spent(method.title, [method], facts) for method in facts.methods]
    if len(rows) > 1:
        rows.append(_spent("all", facts.methods, facts))
    said = [
        "Sentences: all that a trial trains on, entropy encoders included; trainings that were in the store already count in full. "
        f"Work: the time spent in this search. {_early(facts)}".strip()
    ]
    drawings = [price_drawing(facts, dev_unit=dev_unit, styles=styles)] if any(method.scored for method in facts.methods) else []
    yield Block(title="What each method was given", said=said, header=SPENT_HEADER, rows=rows, drawings=drawings)


def _early(facts: SearchFacts) -> str:
    """The sentence on early stopping."""
    halving = facts.search.halving
    pruned = sum(method.count("pruned") for method in facts.methods)
    if halving is None:
        return "Every trial ran to its end."
    shares = " and ".join(f"{100 * share:.0f} %" for share in halving.rungs[:-1])
    return (
        f"At {shares} of a training the best {100 * halving.keep:.0f} % of each method go on; "
        f"{counted(pruned, 'trial was', 'trials were')} pruned. Pruned is not failed."
    )


def _spent(title: str, methods: Sequence[SearchedMethod], facts: SearchFacts) -> list[str]:
    trials = [trial for method in methods for trial in method.trials]
    best = [method.best.dev for method in methods if method.best is not None and method.best.dev is not None]
    return [
        title,
        str(len(trials) + sum(method.num_running for method in methods)),
        *(str(sum(method.count(state) for method in methods)) for state in ("finished", "pruned", "failed")),
        str(sum(method.num_running for method in methods)),
        count_text(sum(map(sentences, trials))),
        duration(sum(trial.paid_s for trial in trials)),
        f"{max(best):.2f}" if best else "–",
    ]


def _field_blocks(facts: SearchFacts, styles: SystemStyles) -> Iterator[Block]:
    if not any(method.scored for method in facts.methods):
        return
    drawings: list[Drawing] = []
    order = {method.name: list(method.fields) for method in facts.methods}
    try:
        found = method_importances(facts)
    except ImportError:
        said = [NO_OPTUNA]
    else:
        said = importance_sentences(facts, found)
        bars = importance_drawing(facts, found, styles=styles)
        drawings += [] if bars is None else [bars]
        order |= {name: [one.field for one in reversed(shares)] for name, shares in found.items() if shares}
    drawings += [
        parallel_drawing(facts, method, order=order[method.name], name=f"search-parallel-{method.name}")
        for method in facts.methods
        if method.scored and method.fields
    ]
    yield Block(title="Which settings matter", said=said, drawings=drawings)


def _failed_blocks(facts: SearchFacts) -> Iterator[Block]:
    failed = [(method, trial) for method in facts.methods for trial in method.trials if trial.state == "failed"]
    if failed:
        rows = [[str(trial.number), method.title, facts.settings(trial.suggestion, method), trial.error or ""] for method, trial in failed]
        more = counted(len(failed) - MOST_FAILED, "more failed trial")
        said = [f"{more} in search-trials.csv."] if failed[MOST_FAILED:] else []
        yield Block(title="Failed trials", said=said, header=("trial", "method", "settings", "why"), rows=rows[:MOST_FAILED])


def trials_csv(facts: SearchFacts) -> str:
    """Return a CSV with a line per trial: settings, state, best dev score at each rung, costs."""
    fields, shares = list(facts.search.space), facts.search.shares
    dev = (f"dev at {share:g}" for share in shares)
    head = ["trial", "method", "state", *fields, *dev, "sentences", "paid_sentences", "paid_s", "forecast_s", "error"]
    rows = [_trial_row(trial, fields, shares) for trial in sorted(facts.record.trials, key=lambda trial: trial.number)]
    return csv_text([head, *rows])


def _trial_row(trial: SearchTrial, fields: Sequence[str], shares: Sequence[float]) -> list[object]:
    at = {rung.share: rung.dev for rung in trial.rungs}
    values = [value_text(trial.suggestion[field]) if field in trial.suggestion else "" for field in fields]
    dev = [f"{at[share]:.4f}" if share in at else "" for share in shares]
    forecast = "" if trial.forecast_s is None else f"{trial.forecast_s:.1f}"
    cost = [sentences(trial), trial.paid_sentences, f"{trial.paid_s:.1f}", forecast]
    return [trial.number, trial.method, trial.state, *values, *dev, *cost, trial.error or ""]


def _page_facts(facts: SearchFacts) -> dict[str, str]:
    search = facts.search
    ended = sum(len(method.trials) for method in facts.methods)
    return {
        "suggested by": search.suggest.replace("_", "-"),
        "trials": f"{ended} ended" + (f", {running} running" if (running := sum(method.num_running for method in facts.methods)) else ""),
        "spent": f"{duration(3600 * facts.record.spent_hours)}, {count_text(facts.record.spent_sentences)} sentences",
    }
