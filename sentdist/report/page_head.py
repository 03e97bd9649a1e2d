"""The head of a sweep's page: its finding in one plain sentence, and with what it was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sentdist.errors import counted
from sentdist.report.cell_facts import CellFacts
from sentdist.report.columns import AVERAGE
from sentdist.report.comparisons import SPEAKS_OF, distance_and_verdict
from sentdist.report.tables import Line, ResultTable
from sentdist.store.chosen import cells_by_dev
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord

MOST_NAMED = 3  # values of one kind; a page of a wide sweep says how many more there are


def finding(sweep: SweepRecord, table: ResultTable, records: Mapping[str, Record]) -> str:
    """For a reader in a hurry: what the recipe's headline method scores (of its cells the one that dev chose), and whether that differs
    from the baseline. The sentences below the table say it with all its numbers."""
    line = headline(sweep, table, records)
    if line is None:
        return ""
    summary = line.cells[table.lead].summary
    assert summary is not None
    said = f"{line.label} scores {summary.mean:.2f} ({column_words(table)})"
    compared = table.compared(line.label)
    if compared is None:
        return f"{said}{_standing(line, table)}."
    both = "; dev chose both" if compared.relation == "chosen" else ""
    doubt = ", on what is there so far" if line.exploratory else ""
    return f"{said}: {distance_and_verdict(compared.differences[table.lead], compared.other)}{both}{doubt}."


def headline(sweep: SweepRecord, table: ResultTable, records: Mapping[str, Record]) -> Line | None:
    """The row that `finding` is about; None where none has a score."""
    known = {line.label: line for line in table.lines if line.cells[table.lead].summary is not None}
    return next((known[label] for label in _candidates(sweep, table, records) if label in known), None)


def rests_on(table: ResultTable, line: Line | None) -> str:
    """What a row's score in the leading column rests on: seeds, test items, and the interval of its difference, else its own; "" for a row
    without a score."""
    if line is None or line.cells[table.lead].summary is None:
        return ""
    behind = [] if line.is_fixed else [counted(line.num_seeds, "seed")]
    behind += [counted(table.num_items[table.lead], "test item")] if table.lead in table.num_items else []
    compared, own = table.compared(line.label), line.cells[table.lead].interval
    found = None if compared is None else compared.differences[table.lead]
    if found is not None and found.low is not None and found.high is not None:
        interval = f"95 % interval of the difference {found.low:+.2f} to {found.high:+.2f} over {SPEAKS_OF[found.about]}"
    elif own is not None:
        interval = f"95 % interval of the score {own.low:.2f} to {own.high:.2f} over {SPEAKS_OF[own.about]}"
    else:
        interval = f"no interval{'' if found is None or not found.reason else f' ({found.reason})'}"
    return f"It rests on {' and '.join(behind)}: {interval}." if behind else ""


def _candidates(sweep: SweepRecord, table: ResultTable, records: Mapping[str, Record]) -> list[str]:
    """Labels of rows, the one to speak of first: of the headline method, else of the first trained one that is not the baseline."""
    methods = sweep.recipe["methods"]
    assert isinstance(methods, dict)
    trained = [name for name, method in methods.items() if isinstance(method, dict) and method.get("objective") is not None]
    ranked = [cell.label for cell in cells_by_dev(sweep, records)]
    lines = sorted(table.lines, key=lambda line: ranked.index(line.label) if line.label in ranked else len(ranked))
    named = [line.label for line in lines if line.method == sweep.recipe.get("headline")]
    others = [line.label for name in trained for line in lines if line.method == name and not line.is_baseline]
    return [*named, *others, *(line.label for line in lines)]


def _standing(line: Line, table: ResultTable) -> str:
    """Where a row stands against the best row; said where there is no baseline."""
    column = table.lead
    means = {one.label: summary.mean for one in table.lines if (summary := one.cells[column].summary) is not None}
    best = max(means, key=lambda label: means[label])
    if len(means) < 2:
        return ""
    printed = {label: f"{mean:.2f}" for label, mean in means.items()}
    if printed[line.label] == printed[best]:
        others = list(printed.values()).count(printed[best]) - 1
        too = f"; {counted(others, 'other row')} {'has' if others == 1 else 'have'} it, too" if others else ""
        return f", the highest of the table{too}"
    verdict = ", which is distinguished from it" if line.cells[column].is_below_best else ""
    return f"; {best} has the highest, {printed[best]}{verdict}"


def column_words(table: ResultTable) -> str:
    """What the leading column is."""
    return f"average of {len(table.columns) - 1} tasks" if table.lead == AVERAGE else table.lead


def page_facts(sweep: SweepRecord, records: Mapping[str, Record], facts: Iterable[CellFacts]) -> dict[str, str]:
    """What a sweep was made with: name -> value, for the head of its page. What varies is a list."""
    cells = list(facts)
    trained = [one.train for one in cells if one.train is not None]
    newest = max(records.values(), key=lambda record: record.created_at)
    versions = (
        f"{name} {newest.environment[name]}" for name in ("torch", "transformers", "ray", "deepspeed") if name in newest.environment
    )
    trainings = [record for record in records.values() if record.kind == "train"] or list(records.values())
    found = {
        "trials": str(len(sweep.trials)),
        "seeds": _listed(sorted({trial.seed for trial in sweep.trials if trial.seed is not None})) or "none",
        "encoder": _listed(one.encoder.checkpoint for one in trained),
        "data": _listed(one.source for one in cells),
        "batch": _listed(one.training.batch_size for one in trained),
        "rate": _listed(one.training.learning_rate for one in trained),
        "epochs": _listed(one.training.epochs for one in trained),
        "machine": _listed(map(_machine, trainings)),
        "finished": newest.created_at.replace("T", " ").removesuffix("Z") + " UTC",
        "made with": ", ".join(versions),
        "commit": _listed(record.environment.get("commit") for record in trainings),
    }
    return {name: value for name, value in found.items() if value}


def _machine(record: Record) -> str:
    """Processor, and GPUs where a training had some; not its name, which says nothing to others."""
    gpus, workers = record.runtime.get("gpus_per_worker"), record.runtime.get("workers", 1)
    parts = [record.environment.get("processor", "")]
    parts += [f"{workers} × {gpus:g} GPU" if gpus != 1 else f"{workers} GPU"] if isinstance(gpus, int | float) and gpus else []
    return ", ".join(part for part in parts if part)


def _listed(values: Iterable[object]) -> str:
    """Distinct values in their order, few of them named; "" for none."""
    texts: Sequence[str] = list(dict.fromkeys(_text(value) for value in values if value not in (None, "")))
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return ", ".join(texts[:MOST_NAMED]) + more


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
