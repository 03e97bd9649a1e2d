"""Python API to score, compare and report: evaluate, compare, report."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.api.encoders import AnyEncoder, Place, use_of
from sentdist.errors import DataError
from sentdist.inference.opening import data_root, open_store
from sentdist.recipe.recipe import Recipe
from sentdist.recipe.specs import AskedPrompts
from sentdist.run.backend import numbers

if TYPE_CHECKING:
    from sentdist.inference.planned_scores import PlannedScores
    from sentdist.recipe.specs import EncoderUse
    from sentdist.report.evaluated import Compared
    from sentdist.report.sweep_report import Report
    from sentdist.store.store import Artifact, ArtifactStore


def evaluate(
    encoder: AnyEncoder,
    tasks: str | Sequence[str] = "sts",
    *,
    prompt: str | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    store: Place = None,
    data: Place = None,
) -> dict[str, float | None]:
    """Score an encoder on tasks. Scores and embeddings are kept in the store and not computed again.

    Args:
        encoder: an `Encoder`, or its name as `Encoder` takes it.
        tasks: names, groups (`sts`, `transfer`, `retrieval`, …), or `KIND=SOURCE@SPLIT` for your own data, such as `sts=pairs.tsv`, below
            the data root, else in this folder. `own=FILE`: the rows that `sentdist tune FILE` holds out for test.
        prompt: prefix of sentences, as in `Encoder.encode`; a warning names the encoder's prompts if none is used.
        query_prompt, document_prompt: prefixes of queries and documents in retrieval, re-ranking and forums, as in `search`.
        store, data: as in `plan`.

    Returns:
        The main score × 100 of each task by its name, and each measure by `task.measure`; None if undefined.

    Raises:
        RecipeError: no such task. DataError: data that is missing or unreadable, an unknown prompt, or one for which no task has texts.
        EncoderError: as `Encoder`; a prompt that leaves no token for a sentence.

    Example:
        scores = sentdist.evaluate("minilm-l6", "scenes-sts")
        print(scores["scenes-sts"])
    """
    from sentdist.inference.planned_scores import PlannedScores

    asked = AskedPrompts(sentence=prompt, query=query_prompt, document=document_prompt)
    use = use_of(encoder, store)
    planned = PlannedScores.of(use, names_of(tasks), store=open_store(store), data=data_root(data), prompts=asked)
    for one in planned.prompts if asked == use.prompts == AskedPrompts() else ():
        if one.line and not one.text:
            warnings.warn(one.line, stacklevel=2)
    return numbers(planned.made().record.results)


def compare(
    encoder: AnyEncoder, other: AnyEncoder, tasks: str | Sequence[str] | None = None, *, store: Place = None, data: Place = None
) -> Compared:
    """Test whether two encoders differ, the first minus the second, on other items of these tasks, as reports do.

    Args:
        encoder, other: as in `evaluate`, such as `minilm-l6?prompt=…`.
        tasks: as in `evaluate`; None: "sts".
        store, data: as in `plan`.

    Returns:
        `lines`, one a task and, if all have the same measure, their average, with both scores × 100 and their `difference` (`low` and
        `high` of its 95 % interval and `table_p`, corrected for all lines; `p` of the line alone); a `sentence` on the average, or on each
        task; and `notes` on what was not compared.

    Raises:
        DataError: the same encoder twice. Others as `evaluate`.
    """
    uses = [use_of(one, store) for one in (encoder, other)]
    planned = planned_pair(uses, names_of(tasks or "sts"), open_store(store), data_root(data))
    return compare_scores((planned[0].checkpoint, planned[1].checkpoint), planned, [one.made() for one in planned])


def report(sweep: str | Recipe | None = None, *, paper: str | None = None, store: Place = None) -> Report:
    """Report a sweep, or all tables of a paper with ours below, from the store's records.

    Args:
        sweep: a `Recipe` or its name; the last sweep under this name.
        paper: name of a paper, instead.
        store: as in `plan`.

    Returns:
        A report with `markdown`, `html` and `files`; `write(folder)` writes them all.

    Raises:
        StoreError: no such sweep, or no finished trial. DataError: no such paper.
    """
    if (sweep is None) == (paper is None):
        found = "neither" if sweep is None else "both"
        raise DataError(where="report", found=found, expected="a sweep, or a paper", remedy="Name one of the two.")
    if paper is not None:
        from sentdist.report.paper_page import report_paper

        return report_paper(open_store(store), paper)
    from sentdist.report.sweep_report import report_sweep

    return report_sweep(open_store(store), sweep.name if isinstance(sweep, Recipe) else str(sweep))


def names_of(tasks: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of tasks; each `str` may hold several, separated by commas."""
    return tuple(name.strip() for one in ([tasks] if isinstance(tasks, str) else tasks) for name in one.split(","))


def planned_pair(
    uses: Sequence[EncoderUse], tasks: Sequence[str], store: ArtifactStore, data: Path | None
) -> tuple[PlannedScores, PlannedScores]:
    """Plan the scores of two encoders on tasks; raises as `compare`."""
    from sentdist.inference.planned_scores import PlannedScores

    first, second = (PlannedScores.of(use, tasks, store=store, data=data, command="compare") for use in uses)
    if first.stage.key == second.stage.key:
        raise _twice(first.checkpoint)
    return first, second


def compare_scores(names: tuple[str, str], planned: tuple[PlannedScores, PlannedScores], artifacts: Sequence[Artifact]) -> Compared:
    """Compare two encoders by their artifacts of scores."""
    from sentdist.report.evaluated import compare_evaluated, compared_measures, scored

    measures = compared_measures(planned[0].names)
    ours, theirs = (
        scored(one.record.results, plan.context.store.folder(one), measures) for plan, one in zip(planned, artifacts, strict=True)
    )
    return compare_evaluated(_labels(*names), (ours, theirs), measures)


def _labels(ours: str, theirs: str) -> tuple[str, str]:
    return (ours, theirs) if ours != theirs else (f"{ours} (first)", f"{theirs} (second)")


def _twice(name: str) -> DataError:
    return DataError(where="compare", found=f"{name} twice", expected="two encoders", remedy="Give another one.")
