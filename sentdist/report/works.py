"""Whose work a sweep's report rests on: of what stands in it, and of what its trainings used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.objectives import terms_of
from sentdist.plan.specs import EncoderSpec
from sentdist.plan.stage import Stage, topological
from sentdist.plan.stages import Scores, Train
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.tasks import TASK_GROUPS, TASKS
from sentdist.report.citations import givers
from sentdist.report.sweep_rows import SweepRows
from sentdist.report.tables import ResultTable
from sentdist.store.record import Record


def works_of_sweep(found: SweepRows, records: Mapping[str, Record], tables: Iterable[ResultTable]) -> list[str]:
    """Keys of citations, sorted."""
    used = {*_of_tests(tables), *_of_machines(records.values())}
    used |= {work for task in found.tasks if task in TASKS and (work := TASKS[task].citation) is not None}
    used |= {"simcse"} if set(found.tasks) & set(TASK_GROUPS["sts"]) else set()  # whose protocol these tasks are scored by
    has_geometry = any(name.startswith("geometry") and name.endswith(".uniformity") for one in records.values() for name in one.results)
    used |= {
        work
        for kind in {*(one.kind.name for one in found.kinds), *(["geometry"] if has_geometry else [])}
        for work in TASK_KINDS[kind].works
    }
    used |= works_of_stages(stage for facts in found.facts.values() for stage in (facts.train, facts.scores) if stage is not None)
    return sorted(used)


def works_of_stages(targets: Iterable[Stage]) -> set[str]:
    """Keys of citations: whose objectives, regularizers, checkpoints and data the stages and all their inputs use."""
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
    """What the tests and intervals that stand in the tables come from."""
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
    """What carried the trainings out; of older records it is known only where several workers shared one."""
    records = tuple(records)
    shared = [one.runtime for one in records if isinstance(workers := one.runtime.get("workers"), int) and workers > 1]
    yield from ("ray",) if shared or any(one.environment.get("executed by") == "ray" for one in records) else ()
    yield from ("deepspeed",) if any(one.get("engine") == "deepspeed" for one in shared) else ()
