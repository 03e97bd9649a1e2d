"""Encoders scored, compared and reported, as a Python program asks for it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from sentdist.api.encoders import AnyEncoder, Encoder, Place
from sentdist.errors import DataError
from sentdist.execution.build_recipe import numbers
from sentdist.inference.arguments import given_data, given_encoder, given_name, given_names, given_store
from sentdist.inference.opening import encoder_use, open_store
from sentdist.plan.recipe import Recipe
from sentdist.plan.specs import AskedPrompts

if TYPE_CHECKING:
    from sentdist.inference.mteb_items import Predictions
    from sentdist.inference.planned_scores import PlannedScores
    from sentdist.plan.specs import EncoderUse
    from sentdist.report.evaluated import Compared
    from sentdist.report.sweep_report import Report


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
    """Score an encoder on tasks: the main score × 100 of each by its name, and each measure by `task.measure`; None where it is undefined.

    tasks: names, groups (`sts`, `transfer`, `retrieval`, …) or `KIND=SOURCE@SPLIT` for data of your own, such as `sts=pairs.tsv`: below
    the data root or, where there is none, in this folder. `own=FILE` is the rows that `sentdist tune FILE` holds out for test.
    query_prompt, document_prompt: before the queries and the documents of retrieval, re-ranking and forums, as in `search`; prompt: before
    the sentences of other tasks, as in `Encoder.encode`; a warning names the encoder's prompts where none of them is taken.
    Scores and embeddings are kept in the store: what is asked again is not computed again.

    Raises:
        RecipeError: no such task. DataError: data that is missing or cannot be read, no such prompt, or none of the tasks has texts for
            it. EncoderError: as `Encoder.load`; a prompt that leaves no token for a sentence.
    """
    names = given_names("evaluate: tasks", tasks)
    options = ("evaluate: prompt", "evaluate: query_prompt", "evaluate: document_prompt")
    asked = AskedPrompts(sentence=prompt, query=query_prompt, document=document_prompt, options=options)
    planned = _planned("evaluate", _use(encoder, store), names, store, data, asked)
    if (prompt, query_prompt, document_prompt) == (None, None, None):
        for one in planned.prompts:
            if one.line and not one.text:
                warnings.warn(one.line, stacklevel=2)
    return numbers(planned.made().record.results)


def compare(
    encoder: AnyEncoder,
    other: AnyEncoder,
    tasks: str | Sequence[str] | None = None,
    *,
    mteb: str | Sequence[str] | None = None,
    store: Place = None,
    data: Place = None,
) -> Compared:
    """Whether two encoders differ, by the test that reports use: the first minus the second, on other items of these tasks.

    tasks: as in `evaluate`; None: "sts". store, data: as there. Each encoder takes the prompts that it takes by itself. Instead of
    encoders, two folders in which mteb has kept its predictions; mteb: tasks of these, by mteb's names or MODULE:CLASS; None: all that
    both have.
    The result has `lines`, a task each and, where all have one measure, their average, with both scores × 100 and their `difference`
    (`low` and `high` of its 95 % interval and `table_p`, corrected for all lines; `p` of the line alone); a `sentence` on the average, or
    without one on each task; and `notes`, on what was not compared.

    Raises:
        DataError: one encoder twice, no task that both have a score of; tasks beside folders of predictions, or one such folder beside an
            encoder. Else as `evaluate`.
    """
    kept = _predictions(encoder), _predictions(other)
    if kept[0] is not None and kept[1] is not None:
        if tasks is not None:
            raise DataError(
                where="compare: tasks", found="tasks beside predictions of mteb", expected="tasks of mteb", remedy="Name them by mteb=…."
            )
        return _compare_predictions((str(encoder), str(other)), kept[0], kept[1], mteb)
    if mteb is not None or kept != (None, None):
        found = "mteb beside encoders" if kept == (None, None) else "predictions of mteb beside an encoder"
        raise DataError(
            where="compare", found=found, expected="two folders of predictions, or two encoders",
            remedy="`sentdist compare … --mteb TASK --out DIR` has mteb run an encoder first.",
        )  # fmt: skip
    names = given_names("compare: tasks", "sts" if tasks is None else tasks)
    uses = [_use(one, store) for one in (encoder, other)]
    first, second = (_planned("compare", use, names, store, data) for use in uses)
    ours, theirs = first.checkpoint, second.checkpoint
    if first.stage.key == second.stage.key:
        raise _twice(ours)

    from sentdist.report.evaluated import compare_evaluated, compared_measures, scored

    measures = compared_measures(first.names)
    here, there = (scored(one.record.results, first.context.store.folder(one), measures) for one in (first.made(), second.made()))
    return compare_evaluated(_labels(ours, theirs), (here, there), measures)


def report(sweep: str | Recipe | None = None, *, paper: str | None = None, store: Place = None) -> Report:
    """The tables and figures of a sweep, or with `paper` all tables of a paper with ours below: a function of the store's records.

    sweep: its recipe, or that recipe's name: what was last run under it. The report has `markdown`, `html` and `files`; `write(folder)`
        writes them all.

    Raises:
        StoreError: no such sweep, or none of its trials is finished. DataError: no such paper.
    """
    name = given_name("report", sweep, paper)
    if paper is not None:
        from sentdist.report.paper_page import report_paper

        return report_paper(open_store(given_store(store)), name)
    from sentdist.report.sweep_report import report_sweep

    return report_sweep(open_store(given_store(store)), name)


def _compare_predictions(names: tuple[str, str], first: Predictions, second: Predictions, tasks: str | Sequence[str] | None) -> Compared:
    """Compare two encoders by the predictions that mteb has kept."""
    asked = None if tasks is None else given_names("compare: mteb", tasks)
    if first.folder.resolve() == second.folder.resolve():
        raise _twice(names[0])

    from sentdist.inference.mteb_items import predicted_scores
    from sentdist.report.evaluated import compare_evaluated

    with TemporaryDirectory() as place:
        scores = predicted_scores((first, second), asked, Path(place))
        found = compare_evaluated(_labels(*names), scores.both, scores.measures)
    return replace(found, notes=(*scores.notes, *found.notes))


def _predictions(given: AnyEncoder) -> Predictions | None:
    """What mteb has kept in a folder; None for what is none."""
    if not isinstance(given, str | Path) or not Path(given).expanduser().is_dir():
        return None
    from sentdist.inference.mteb_items import Predictions

    return Predictions.of(str(Path(given).expanduser()))


def _labels(ours: str, theirs: str) -> tuple[str, str]:
    return (ours, theirs) if ours != theirs else (f"{ours} (first)", f"{theirs} (second)")


def _twice(name: str) -> DataError:
    return DataError(where="compare", found=f"{name} twice", expected="two encoders", remedy="Give another one.")


def _use(encoder: AnyEncoder, store: Place) -> EncoderUse:
    return encoder.loaded.use if isinstance(encoder, Encoder) else encoder_use(given_encoder("encoder", encoder), given_store(store))


def _planned(
    command: str, use: EncoderUse, tasks: Sequence[str], store: Place, data: Place, prompts: AskedPrompts | None = None
) -> PlannedScores:
    from sentdist.inference.planned_scores import PlannedScores

    return PlannedScores.of(use, tasks, store=open_store(given_store(store)), data=given_data(data), command=command, prompts=prompts)
