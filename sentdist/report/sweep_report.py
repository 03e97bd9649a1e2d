"""Build the report of a sweep or search from its records: Markdown, HTML, CSV tables and figures in one folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sentdist.errors import StoreError, listed
from sentdist.recipe.recipe import recipe_text
from sentdist.report import citations
from sentdist.report.citations import works_of_sweep
from sentdist.report.comparisons import GridBaseline
from sentdist.report.leaks import LEAKS_HEADER, LEAKS_NOTE, LEAKS_TITLE, NOT_CHECKED, SweepLeaks, sweep_leaks
from sentdist.report.method_figures import GEOMETRY_HEADER, LINK_HEADER, PROBES, geometry_rows, link_rows, means_table, results_of
from sentdist.report.page_head import finding, page_facts, rests_on, spoken_rows
from sentdist.report.score_rows import ResultRow
from sentdist.report.search import SearchFacts, search_facts, search_part
from sentdist.report.selection import (
    SELECTION_HEADER,
    SELECTION_TITLE,
    chosen_cells,
    confirmation_sentence,
    selection_note,
    selection_rows,
)
from sentdist.report.style import Drawing
from sentdist.report.sweep_drawings import sweep_drawings
from sentdist.report.sweep_rows import SweepRows, sweep_rows, table_rows
from sentdist.report.tables import ResultTable, build_table, comparisons_to_csv, to_csv
from sentdist.report.templating import Block, html_page, render
from sentdist.store.record import Record, not_understood
from sentdist.store.searches import find_search
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import (
    SweepRecord,
    cells_by_dev,
    challengers,
    chosen_of_baseline,
    confirmed_name,
    load_sweep,
    method_title,
)
from sentdist.text import Citation

FIRST_FIGURES = {"differences": "Differences", "learning": "Learning curves"}  # shown on the page; all others are folded away
STAGE_HEADER = ("stage", "mentioned by trials", "different", "finished", "seconds of work", "seconds spared by sharing")
PROBES_NOTE = (
    "What linear probes predict from each part, on held-out sentences (0: nothing, 1: all), means over seeds. Tags belong in the tag "
    "channels, words in the word channels; adversaries work against the others."
)
LINK_NOTE = (
    "Rank of the true tail of a (head, relation) among held-out tails, without other true tails, ties at their "
    "mean rank; × 100, means over seeds."
)


@dataclass(frozen=True, kw_only=True)
class SweepPage:
    """The values that the template of a sweep or search uses.

    Args:
        lead: sentences on the findings; `rests_on`: number of seeds and test items, in words.
        about: the question that the sweep asks.
        first: blocks after the tables.
        details: blocks at the end, folded away in HTML.
    """

    title: str
    lead: tuple[str, ...]
    rests_on: str = ""
    about: str = ""
    tables: tuple[ResultTable, ...] = ()
    first: tuple[Block, ...] = ()
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


def report_sweep(store: ArtifactStore, name: str) -> Report:
    """Build the report of a sweep or search from the records in the store.

    Raises:
        StoreError: unknown sweep, or no finished trial.
    """
    search_record = find_search(store, name)
    if search_record is not None and f"{name}.json" not in store.files.names("sweeps"):
        return _search_alone(search_facts(search_record, None, {}))
    sweep = load_sweep(store, name)
    records = sweep.records(store)
    scored = sweep_rows(sweep, store, records)
    search = None if search_record is None else search_facts(search_record, sweep, records)
    if next(table_rows(scored), None) is None:
        if search is not None:
            return _search_alone(search)
        raise StoreError(
            where=f"sweep {name}", found="no finished trial", expected="at least one, with all of its folds", remedy="Run the sweep first."
        )
    leaks = sweep_leaks(sweep, store, records)
    baseline = _chosen_baseline(sweep, records) if search is None else search.chosen_cell(sweep.baseline)
    grid = _grid_baseline(sweep, records) if search is None else None  # finalists of a search are compared with the one that dev chose
    tables = list(result_tables(sweep, scored, leaks, baseline=baseline, grid=grid))
    if search is None:
        part = None
        fresh = _confirmed(store, sweep)
        lead, basis = _found(_FirstTable(sweep=sweep, table=tables[0], records=records), fresh)
        chosen = confirmation_sentence(sweep, records, None if fresh is None else fresh.table)
    else:
        part, chosen = search_part(search, tables[0]), ""
        lead, basis = part.lead, rests_on(tables[0], tables[0].line(part.headline) if part.headline else None)
    drawings = list(sweep_drawings(sweep, records, scored=scored, tables=tables))
    used = citations.cite([*works_of_sweep(scored, records, tables), *(part.works if part else ())])
    facts = page_facts(sweep, records)
    page = SweepPage(
        title=sweep.name, lead=lead, rests_on=basis, about=sweep.about, tables=tuple(tables),
        first=(
            *(Block(title=FIRST_FIGURES[one.name], drawings=(one,)) for one in drawings if one.name in FIRST_FIGURES),
            *((part.block,) if part else ()),
        ),
        details=(
            Block(title="Setup", tables=((("", ""), [*facts.items()]),)),
            *_details(sweep, records, tables[0], leaks, chosen),
            *_further(drawings, [trial.name for trial in scored.unfinished]),
        ),
        recipe=recipe_text(sweep.recipe), citations=tuple(used),
    )  # fmt: skip
    return _report(page, drawings, {**_files(tables, drawings, used), **(part.files if part else {})})


def keep_report(store: ArtifactStore, name: str, folder: Path) -> str:
    """Put the report of a sweep or search under `reports/` in the store and into a local folder; return the URI of its page.

    Raises:
        StoreError: as `report_sweep`; or the store cannot be written.
    """
    report_sweep(store, name).write(folder)
    store.files.write_folder(folder, f"reports/{name}")
    return f"{store.files.uri(f'reports/{name}')}/report.html"


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


def _search_alone(facts: SearchFacts) -> Report:
    """The report of a search without scored finalists."""
    record = facts.record
    part = search_part(facts, None)
    used = citations.cite(part.works)
    page = SweepPage(
        title=record.name, lead=part.lead, first=(part.block,), recipe=recipe_text(record.recipe), citations=tuple(used)
    )  # fmt: skip
    return _report(page, (), {**part.files, "citations.bib": citations.to_bibtex(used)})


def _report(page: SweepPage, drawings: Sequence[Drawing], files: dict[str, str | bytes]) -> Report:
    markdown = render("sweep.md.jinja", page=page)
    html = html_page(markdown, drawings)
    return Report(name=page.title, lead="\n".join(page.lead), markdown=markdown, html=html, rests_on=page.rests_on, files=files)


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
    if f"{confirmed_name(sweep.name)}.json" not in store.files.names("sweeps"):
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
        counts = (sum(mentions[key] for key in keys), len(keys), len(done), round(sum(record.seconds for record in done)), round(spared))
        rows.append([kind, *map(str, counts)])
    return rows


def _details(sweep: SweepRecord, records: dict[str, Record], table: ResultTable, leaks: SweepLeaks, chosen: str) -> Iterator[Block]:
    """The blocks on choice, leaks, geometry, links, probes and stages."""
    if cells := chosen_cells(sweep, records, table):
        said = filter(None, (selection_note(cells), chosen))
        yield Block(title=SELECTION_TITLE, said=tuple(said), tables=((SELECTION_HEADER, selection_rows(cells)),))
    if any(trial.train for trial in sweep.trials):
        yield Block(title=LEAKS_TITLE, said=(LEAKS_NOTE if leaks.is_known else NOT_CHECKED,), tables=((LEAKS_HEADER, leaks.rows),))
    results = results_of(sweep, records)
    if geometry := geometry_rows(results):
        yield Block(title="Geometry", tables=((GEOMETRY_HEADER, geometry),))
    if links := link_rows(results):
        yield Block(title="Link prediction", said=(LINK_NOTE,), tables=((LINK_HEADER, links),))
    if probes := means_table(results, list(PROBES)):
        yield Block(title="Probes", said=(PROBES_NOTE,), tables=((("system", *PROBES.values()), probes),))
    other = not_understood(records)
    unread = (f"Of another version, with fields that this one does not know, so only times are read: {listed(other)}.",) if other else ()
    yield Block(title="Stages", said=unread, tables=((STAGE_HEADER, _stage_rows(sweep, records)),))
