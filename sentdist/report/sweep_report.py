"""Build the report of a sweep or search from its records: Markdown, HTML, CSV tables and figures in one folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sentdist.errors import StoreError, listed
from sentdist.plan.recipe import recipe_text
from sentdist.plan.stage import as_number
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report import citations
from sentdist.report.citations import works_of_sweep
from sentdist.report.comparisons import GridBaseline
from sentdist.report.leaks import LEAKS_HEADER, LEAKS_NOTE, LEAKS_TITLE, NOT_CHECKED, SweepLeaks, sweep_leaks
from sentdist.report.method_figures import LINK_HEADER, link_table
from sentdist.report.page_head import finding, page_facts, rests_on, spoken_rows
from sentdist.report.printed import SideBySide, tables_of
from sentdist.report.score_rows import ResultRow
from sentdist.report.search.blocks import search_part
from sentdist.report.search.facts import SearchFacts, search_facts
from sentdist.report.selection import (
    SELECTION_HEADER,
    SELECTION_TITLE,
    chosen_cells,
    confirmation_sentence,
    selection_note,
    selection_rows,
    selection_sentence,
)
from sentdist.report.style import Drawing
from sentdist.report.sweep_drawings import FIRST_FIGURES, dev_unit, sweep_drawings
from sentdist.report.sweep_rows import SweepRows, sweep_rows, table_rows
from sentdist.report.tables import ResultTable, build_table, comparisons_to_csv, test_columns, tests_of, to_csv
from sentdist.report.templating import Block, render
from sentdist.store.chosen import cells_by_dev, challengers, chosen_of_baseline, confirmed_name
from sentdist.store.record import Record, not_understood
from sentdist.store.searches import find_search
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord, load_sweep, method_title, sweep_names
from sentdist.text import Citation

STAGE_HEADER = ["stage", "mentioned by trials", "different", "finished", "seconds of work", "seconds spared by sharing"]
GEOMETRY_HEADER = ["system", "alignment ↓", "uniformity ↓", "mean cosine", "effective rank"]
LINK_NOTE = (
    "Rank of the true tail of a (head, relation) among held-out tails, without other true tails, ties at their "
    "mean rank; × 100, means over seeds."
)


@dataclass(frozen=True, kw_only=True)
class SweepPage:
    """The values that the templates of a sweep or search use.

    Args:
        lead: sentences on the findings.
        about: the question that the sweep asks.
        first: blocks before the tables.
        details: blocks below tables and figures, folded away.
    """

    title: str
    lead: tuple[str, ...]
    about: str = ""
    facts: Mapping[str, str]
    first: tuple[Block, ...] = ()
    tables: tuple[ResultTable, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    printed: tuple[SideBySide, ...] = ()
    details: tuple[Block, ...] = ()
    recipe: str
    citations: tuple[Citation, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report in memory: HTML page, Markdown text and further files (name -> content).

    Args:
        lead: the findings, one sentence per line.
        rests_on: number of seeds and test items that the findings rest on; "" if there are none.
    """

    name: str
    lead: str
    markdown: str = field(repr=False)
    html: str = field(repr=False)
    rests_on: str = ""
    files: dict[str, str | bytes] = field(repr=False)  # megabytes, which a notebook would show

    def write(self, folder: str | Path) -> Path:
        """Write all files to a local folder and return the path of the page."""
        folder = Path(folder).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in {"report.md": self.markdown, "report.html": self.html, **self.files}.items():
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return folder / "report.html"


def report_sweep(store: ArtifactStore, name: str, *, links: Mapping[str, str] | None = None) -> Report:
    """Build the report of a sweep or search from the records in the store.

    Args:
        links: name -> URL of pages of the tracker on the same sweep.

    Raises:
        StoreError: unknown sweep, or no finished trial.
    """
    search_record = find_search(store, name)
    if search_record is not None and name not in sweep_names(store):
        return _search_alone(search_facts(search_record, None, {}), links or {})
    sweep = load_sweep(store, name)
    records = sweep.records(store)
    scored = sweep_rows(sweep, store, records)
    search = None if search_record is None else search_facts(search_record, sweep, records)
    if next(table_rows(scored), None) is None:
        if search is not None:
            return _search_alone(search, links or {})
        raise StoreError(
            where=f"sweep {name}", found="no finished trial", expected="at least one, with all of its folds", remedy="Run the sweep first."
        )
    leaks = sweep_leaks(sweep, store, records)
    baseline = _chosen_baseline(sweep, records) if search is None else search.chosen_cell(sweep.baseline)
    grid = _grid_baseline(sweep, records) if search is None else None  # finalists of a search are compared with the one that dev chose
    tables = list(result_tables(sweep, scored, leaks, baseline=baseline, grid=grid))
    if search is None:
        fresh = _confirmed(store, sweep)
        lead, basis = _found(_FirstTable(sweep=sweep, table=tables[0], records=records), fresh)
        part = None
        chosen = confirmation_sentence(sweep, records, None if fresh is None else fresh.table)
    else:
        part, chosen = search_part(search, tables[0], dev_unit=dev_unit(sweep.recipe), links=links or {}), ""
        lead, basis = part.lead, rests_on(tables[0], tables[0].line(part.headline) if part.headline else None)
    drawings = list(sweep_drawings(sweep, store, records, scored=scored, tables=tables))
    used = citations.cite([*works_of_sweep(scored, records, tables), *(part.works if part else ())])
    page = SweepPage(
        title=sweep.name,
        lead=lead,
        about=sweep.about,
        facts={
            **page_facts(sweep, records, scored.facts.values()),
            **({"test items": f"{tables[0].num_items[tables[0].lead]:,}"} if tables[0].lead in tables[0].num_items else {}),
            **(part.facts if part else {}),
        },
        first=part.first if part else (),
        tables=tuple(tables),
        drawings=tuple(one for one in drawings if one.name in FIRST_FIGURES),
        printed=tuple(_printed(sweep, scored, tables)),
        details=(
            *_differences(tables),
            *(part.rest if part else ()),
            *_details(sweep, records, tables[0], leaks, chosen),
            *_further(drawings, [trial.name for trial in scored.unfinished]),
        ),
        recipe=recipe_text(sweep.recipe),
        citations=tuple(used),
    )
    return replace(_report(page, {**_files(tables, drawings, used), **(part.files if part else {})}), rests_on=basis)


def _printed(sweep: SweepRecord, scored: SweepRows, tables: Sequence[ResultTable]) -> Iterator[SideBySide]:
    """The STS tables beside those of the sweep's paper."""
    if sweep.paper is not None:
        for table in tables:
            if table.title == TASK_KINDS["sts"].table:
                yield from tables_of(sweep.paper).beside(table, scored.facts)


@dataclass(frozen=True, kw_only=True)
class _FirstTable:
    """A sweep with its first table."""

    sweep: SweepRecord
    table: ResultTable
    records: Mapping[str, Record]


def _found(scored: _FirstTable, fresh: _FirstTable | None) -> tuple[tuple[str, ...], str]:
    """Return the findings of a sweep without a search, in sentences, and what they rest on.

    If dev chose the first row among several cells, the scores are those of fresh seeds, once some are there. fresh: their sweep.
    """
    rows = spoken_rows(scored.sweep, scored.table, scored.records)
    cells = challengers(scored.sweep, scored.records)
    speaks, choice = scored, []
    if fresh is not None and len(cells) > 1 and rows and rows[0].label == cells[0].label:
        speaks, choice = fresh, [f"The settings were chosen on dev; these scores are of fresh seeds ({fresh.sweep.name})."]
    elif any(sum(cell.trials[0].method == row.method for cell in cells) > 1 for row in rows):
        choice = [
            "The settings were chosen on dev with the same seeds, which favours them; `confirm_seeds: N` in the recipe adds new seeds."
        ]
    said = finding(speaks.sweep, speaks.table, speaks.records) or [scored.sweep.about]
    first = next(iter(spoken_rows(speaks.sweep, speaks.table, speaks.records)), None)
    return (*said, *choice), rests_on(speaks.table, first)


def _search_alone(facts: SearchFacts, links: Mapping[str, str]) -> Report:
    """The report of a search without scored finalists."""
    record = facts.record
    part = search_part(facts, None, dev_unit=dev_unit(record.recipe), links=links)
    used = citations.cite(part.works)
    page = SweepPage(
        title=record.name, lead=part.lead, facts=part.facts, first=part.first, details=part.rest, recipe=recipe_text(record.recipe),
        citations=tuple(used),
    )  # fmt: skip
    return _report(page, {**part.files, "citations.bib": citations.to_bibtex(used)})


def _report(page: SweepPage, files: dict[str, str | bytes]) -> Report:
    return Report(
        name=page.title,
        lead="\n".join(page.lead),
        markdown=render("sweep.md.jinja", page=page),
        html=render("sweep.html.jinja", page=page),
        files=files,
    )


def result_tables(
    sweep: SweepRecord, scored: SweepRows, leaks: SweepLeaks, *, baseline: str | None = None, grid: GridBaseline | None = None
) -> Iterator[ResultTable]:
    """Yield the tables of scores of a sweep.

    Args:
        baseline: label of a cell; None: the first cell of the sweep's baseline.
        grid: compare rows at equal grid points with this baseline.
    """
    baseline = baseline or next((trial.cell for trial in sweep.trials if trial.method == sweep.baseline), None)
    for one in table_rows(scored):
        yield build_table(
            one, baseline=_present(baseline, one.rows) if one.is_compared else None, grid=grid if one.is_compared else None,
            exploratory=scored.exploratory, leaked=leaks.of_columns(one.columns, one.task_of),
        )  # fmt: skip


def _confirmed(store: ArtifactStore, sweep: SweepRecord) -> _FirstTable | None:
    """The sweep of fresh seeds; None until one of its trials is finished."""
    if confirmed_name(sweep.name) not in sweep_names(store):
        return None
    fresh = load_sweep(store, confirmed_name(sweep.name))
    records = fresh.records(store)
    scored = sweep_rows(fresh, store, records)
    table = next(result_tables(fresh, scored, sweep_leaks(fresh, store, records)), None)
    return None if table is None else _FirstTable(sweep=fresh, table=table, records=records)


def _grid_baseline(sweep: SweepRecord, records: Mapping[str, Record]) -> GridBaseline | None:
    """The sweep's baseline with its title, and all cells ranked by dev score."""
    if sweep.baseline is None:
        return None
    by_dev = tuple(cell.label for cell in cells_by_dev(sweep, records))
    return GridBaseline(method=sweep.baseline, title=method_title(sweep.recipe, sweep.baseline), by_dev=by_dev)


def _chosen_baseline(sweep: SweepRecord, records: Mapping[str, Record]) -> str | None:
    chosen = chosen_of_baseline(sweep, records)
    return None if chosen is None else chosen.label


def _present(baseline: str | None, rows: Sequence[ResultRow]) -> str | None:
    return baseline if baseline in {row.label for row in rows} else None


def _differences(tables: Sequence[ResultTable]) -> Iterator[Block]:
    """Every tested difference of every table."""
    for table in tables:
        if rows := tests_of(table):
            yield Block(title=f"All differences from {table.references.title}: {table.title}", header=test_columns(table), rows=rows)


def _further(drawings: Sequence[Drawing], unfinished: Sequence[str]) -> Iterator[Block]:
    if others := [one for one in drawings if one.name not in FIRST_FIGURES]:
        yield Block(title="Further figures", drawings=others)
    if unfinished:
        yield Block(title="Not finished", said=unfinished)


def _files(tables: list[ResultTable], drawings: list[Drawing], used: list[Citation]) -> dict[str, str | bytes]:
    files: dict[str, str | bytes] = {"citations.bib": citations.to_bibtex(used)}
    for number, table in enumerate(tables, start=1):
        files |= {f"table{number}.csv": to_csv(table), f"table{number}-comparisons.csv": comparisons_to_csv(table)}
    for drawing in drawings:
        files |= {f"{drawing.name}.svg": drawing.svg, f"{drawing.name}.png": drawing.png, f"{drawing.name}.csv": drawing.table}
    return files


def _stage_rows(sweep: SweepRecord, records: dict[str, Record]) -> list[list[str]]:
    """The cost of each kind of stage, under STAGE_HEADER."""
    mentions = sweep.mentions
    rows = []
    for kind in dict.fromkeys(place.partition("/")[0] for place in sweep.places.values()):
        keys = [key for key, place in sweep.places.items() if place.startswith(f"{kind}/")]
        done = [records[key] for key in keys if key in records]
        spared = sum((mentions[record.key] - 1) * record.seconds for record in done)
        rows.append(
            [
                kind,
                str(sum(mentions[key] for key in keys)),
                str(len(keys)),
                str(len(done)),
                f"{sum(record.seconds for record in done):.0f}",
                f"{spared:.0f}",
            ]
        )
    return rows


def _geometry_rows(sweep: SweepRecord, records: dict[str, Record]) -> list[list[str]]:
    """Alignment, uniformity and mean cosine of every cell, means over its finished trials."""
    rows = []
    for cell, trials in sweep.cells.items():
        done = [records[trial.key].results for trial in trials if trial.key in records]
        task = "geometry" if any("geometry.uniformity" in results for results in done) else "geometry-stsb"
        names = [f"{task}.{measure}" for measure in TASK_KINDS["geometry"].shown]
        values = [[one for results in done if (one := as_number(results.get(name))) is not None] for name in names]
        if all(values):
            means = [sum(value) / len(value) for value in values]
            rows.append([cell, *(f"{mean:.1f}" if abs(mean) >= 10 else f"{mean:.3f}" for mean in means)])
    return rows


def _details(sweep: SweepRecord, records: dict[str, Record], table: ResultTable, leaks: SweepLeaks, chosen: str) -> Iterator[Block]:
    """The blocks below tables and figures."""
    if cells := chosen_cells(sweep, records, table):
        said = filter(None, (selection_note(cells), selection_sentence(cells, column=table.lead), chosen))
        yield Block(title=SELECTION_TITLE, said=tuple(said), header=SELECTION_HEADER, rows=selection_rows(cells))
    if any(trial.train for trial in sweep.trials):
        yield Block(title=LEAKS_TITLE, said=(LEAKS_NOTE if leaks.is_known else NOT_CHECKED,), header=LEAKS_HEADER, rows=leaks.rows)
    if geometry := _geometry_rows(sweep, records):
        yield Block(title="Geometry", header=GEOMETRY_HEADER, rows=geometry)
    printed = {} if sweep.paper is None else tables_of(sweep.paper).links
    if links := link_table(sweep, records, printed=printed):
        yield Block(title="Link prediction", said=(LINK_NOTE,), header=LINK_HEADER, rows=links)
    other = not_understood(records)
    unread = (f"Of another version, with fields that this one does not know, so only times are read: {listed(other)}.",) if other else ()
    yield Block(title="Stages", said=unread, header=STAGE_HEADER, rows=_stage_rows(sweep, records))
