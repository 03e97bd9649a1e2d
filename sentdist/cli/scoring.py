"""Commands that score encoders: evaluate."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli.options import DataRoot, EncoderName, EncoderRevision, GpusPerWorker, Precision, StoreRoot, named_gpus
from sentdist.cli.printing import empty_table, open_console, sentence_progress, two_decimals
from sentdist.errors import DataError
from sentdist.inference.opening import encoder_folder, encoder_use, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sentdist.inference.ready_encoder import EncoderUse
    from sentdist.plan.stage import Json
    from sentdist.plan.stages import Scores
    from sentdist.stages.context import Context
    from sentdist.store.store import Artifact


def evaluate(
    encoder: EncoderName,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks",
            help="Tasks, groups (sts, transfer, retrieval, …) or KIND=SOURCE@SPLIT for data of your own; with commas, or repeated.  [default: sts]",
            show_default=False,
        ),
    ] = None,
    revision: EncoderRevision = None,
    pooling: Annotated[str, typer.Option(help="mean, cls, cls_mlp, cls_mlp_train_only or first_last.")] = "mean",
    max_length: Annotated[int | None, typer.Option(help="Tokens; the encoder's own limit if left out.")] = None,
    precision: Precision = "fp32",
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Encode on that many workers of the Ray cluster.")] = None,
    gpus_per_worker: GpusPerWorker = None,
    mteb: Annotated[
        list[str] | None,
        typer.Option("--mteb", metavar="TASK", help="Instead: tasks or a benchmark of mteb, or MODULE:CLASS of your own; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where --mteb writes, in mteb's format.")] = None,
    store: StoreRoot = None,
    data: DataRoot = None,
) -> None:
    """Score any encoder, ours or not."""
    if mteb or out is not None:
        use = encoder_use(encoder, store, revision=revision, pooling=pooling, max_length=max_length, precision=precision)
        _on_mteb(use, mteb or [], out, without={"--tasks": tasks, "--workers": workers})
        return

    from sentdist.plan.runtime import Runtime
    from sentdist.stages.planning.planned import planned_evaluation

    opened = open_store(store)
    given = tuple(name.strip() for names in tasks or ["sts"] for name in names.split(","))
    stage, context = planned_evaluation(
        encoder_folder(encoder, opened),
        given,
        revision=revision,
        pooling=pooling,
        max_length=max_length,
        precision=precision,
        runtime=Runtime.model_validate({"engine": "torch", "workers": workers or 1} | named_gpus(gpus_per_worker)),
        store=opened,
        data=data,
    )
    artifact = opened.get(stage) or _scored(stage, context, over_workers=workers is not None)
    table = empty_table(encoder, "task", "measure", "× 100")
    for task, measure, score in _score_lines(given, artifact.record.results):
        table.add_row(task, measure, score)
    open_console().print(table)
    typer.echo(f"All measures and items: {opened.folder(artifact)}")


def _scored(stage: Scores, context: Context, *, over_workers: bool) -> Artifact:
    from sentdist.stages.devices import on_this_machine
    from sentdist.stages.scores.build import build_scores
    from sentdist.stages.scores.embed_sentences import embed_here

    embed = embed_here
    if over_workers:
        from sentdist.execution.parallel.embed import embed_over_workers

        embed = embed_over_workers
    else:
        runtime, devices = on_this_machine(context.runtime)
        context = replace(context, runtime=runtime)
        typer.echo(f"Encoding {devices}.")
    with sentence_progress("encoding", None) as advance:
        return build_scores(stage, context, make_embed=partial(embed, on_progress=advance))


def _on_mteb(use: EncoderUse, given: list[str], out: Path | None, *, without: Mapping[str, object]) -> None:
    """Have mteb score the encoder on its own tasks."""
    refused = [name for name, value in without.items() if value]
    if not given or out is None or refused:
        found = f"{refused[0]} beside --mteb" if refused else "--mteb without --out" if given else "--out without --mteb"
        raise DataError(
            where="sentdist evaluate", found=found, expected="--mteb TASK --out DIR, or --tasks", remedy="Name tasks of one kind."
        )

    from sentdist.inference.mteb_tasks import mteb_tasks, score_on_mteb

    tasks = mteb_tasks(given)
    table = empty_table(use.checkpoint, "task of mteb", "main score × 100")
    for score in score_on_mteb(use.load(), tasks, out):
        table.add_row(score.task, two_decimals(score.score))
    open_console().print(table)
    typer.echo(f"In mteb's format: {out}/results")


def _score_lines(given: tuple[str, ...], results: Mapping[str, Json]) -> Iterator[tuple[str, str, str]]:
    """A line a task, and below each group its average; a mean over tasks of different measures would say nothing."""
    from sentdist.plan.chosen_tasks import named_task
    from sentdist.plan.tasks import TASK_GROUPS

    for name in dict.fromkeys(given):
        members = [named_task(task) for task in TASK_GROUPS.get(name, (name,))]
        for task in members:
            if task.card.kind == "geometry":
                measures = ("alignment", "uniformity", "mean_cosine", "effective_rank")
                yield from ((task.name, f"{one} (not × 100)", two_decimals(results[f"{task.name}.{one}"])) for one in measures)
            else:
                yield task.name, task.card.metric, two_decimals(results[task.name])
        if len(members) > 1 and len({task.card.metric for task in members}) == 1:
            scores = [float(value) for task in members if isinstance(value := results[task.name], int | float)]
            yield (
                f"average of {name}",
                members[0].card.metric,
                two_decimals(sum(scores) / len(scores) if len(scores) == len(members) else None),
            )
