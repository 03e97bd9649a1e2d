"""Citations of the methods, data, encoders, tests and tools that a report uses."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import resources

from sentdist.corpora.kind import CorpusStage
from sentdist.errors import DataError
from sentdist.recipe.objectives import OBJECTIVES, terms_of
from sentdist.recipe.specs import EncoderSpec
from sentdist.recipe.stage import Stage, topological
from sentdist.recipe.stages import Scores, Train
from sentdist.report.sweep_rows import SweepRows
from sentdist.report.tables import ResultTable
from sentdist.store.record import Record
from sentdist.tasks.cards import TASK_GROUPS, TASKS
from sentdist.tasks.kinds import TASK_KINDS
from sentdist.text import Citation


def _works() -> dict[str, Citation]:
    """The works of objectives, then those of citations.csv, by key."""
    works = [work for objective in OBJECTIVES.values() for work in objective.citations]
    text = resources.files("sentdist.report").joinpath("citations.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(io.StringIO(text)):
        authors, gave = (tuple(filter(None, row.pop(name).split("; "))) for name in ("authors", "gave"))
        works.append(Citation(authors=authors, gave=gave, year=int(row.pop("year")), **row))  # type: ignore[arg-type]
    return {work.key: work for work in works}


CITATIONS = _works()


def cite(used: Iterable[str]) -> list[Citation]:
    """Return the works of these keys, each once, in the order of `CITATIONS`; raise DataError for an unknown key."""
    wanted = set(used)
    unknown = sorted(wanted - CITATIONS.keys())
    if unknown:
        raise DataError(
            where="citations", found=f"{unknown}", expected=f"some of {sorted(CITATIONS)}", remedy="Add the work to report/citations.csv."
        )
    return [citation for key, citation in CITATIONS.items() if key in wanted]


def givers(name: str) -> list[str]:
    """Return the keys of works that published a data source or checkpoint, by hub id, packaged name or folder."""
    return [key for key, one in CITATIONS.items() if any(fnmatchcase(name.lower(), pattern) for pattern in one.gave)]


def to_bibtex(citations: Sequence[Citation]) -> str:
    """Return the content of a `.bib` file."""
    return "\n\n".join(citation.bibtex() for citation in citations) + "\n"


def works_of_sweep(found: SweepRows, records: Mapping[str, Record], tables: Iterable[ResultTable]) -> list[str]:
    """Return the sorted keys of all works that the report of a sweep cites."""
    used = {*_of_tests(tables), *_of_machines(records.values())}
    used |= {work for task in found.tasks if task in TASKS and (work := TASKS[task].citation) is not None}
    used |= {"simcse"} if set(found.tasks) & set(TASK_GROUPS["sts"]) else set()  # the protocol by which these tasks are scored
    has_geometry = any(name.startswith("geometry") and name.endswith(".uniformity") for one in records.values() for name in one.results)
    used |= {
        work
        for kind in {*(one.kind.name for one in found.kinds), *(["geometry"] if has_geometry else [])}
        for work in TASK_KINDS[kind].works
    }
    used |= works_of_stages(stage for facts in found.facts.values() for stage in (facts.train, facts.scores) if stage is not None)
    return sorted(used)


def works_of_stages(targets: Iterable[Stage]) -> set[str]:
    """Return the keys of works for objectives, regularizers, checkpoints and data of stages and all their inputs."""
    used: set[str] = set()
    for stage in topological(tuple(targets)):
        if isinstance(stage, CorpusStage):
            used.update(work for one in stage.sources for work in givers(one.source))
        elif isinstance(stage, Train):
            used.update(work.key for term in terms_of(stage.objective) for work in term.used_citations)
            used.update(stage.regularizers.works, givers(stage.encoder.checkpoint))
        elif isinstance(stage, Scores) and isinstance(stage.encoder, EncoderSpec):
            used.update(givers(stage.encoder.checkpoint))
    return used


def _of_tests(tables: Iterable[ResultTable]) -> Iterator[str]:
    """Keys of works for the tests and intervals in the tables."""
    tables = tuple(tables)
    tested = [one for table in tables for pair in table.comparisons for one in pair.differences.values() if one.p is not None]
    about = {one.about for one in tested}
    about |= {cell.interval.about for table in tables for line in table.lines for cell in line.cells.values() if cell.interval is not None}
    yield from ("jackknife",) if any("items" in one for one in about) else ()
    yield from ("pigeonhole",) if "seeds and items" in about else ()
    yield from ("moderated",) if any("seeds" in one for one in about) else ()
    yield from ("max_t",) if len(tested) > 1 else ()
    yield from ("confidence_set",) if tested else ()


def _of_machines(records: Iterable[Record]) -> Iterator[str]:
    """Keys of works for the tools that ran the trainings; older records tell only if there were several workers."""
    records = tuple(records)
    shared = [one.runtime for one in records if isinstance(workers := one.runtime.get("workers"), int) and workers > 1]
    yield from ("ray",) if shared or any(one.environment.get("executed by") == "ray" for one in records) else ()
    yield from ("deepspeed",) if any(one.get("engine") == "deepspeed" for one in shared) else ()
