"""Commands that score encoders: evaluate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli.opening import encoder_folder, open_store
from sentdist.cli.options import DataRoot, EncoderName, EncoderRevision, StoreRoot
from sentdist.cli.printing import empty_table, open_console, two_decimals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sentdist.plan.stage import Json


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
    store: StoreRoot = None,
    data: DataRoot = None,
) -> None:
    """Score any encoder, ours or not."""
    from sentdist.plan.unroll import evaluation_of
    from sentdist.stages.resolve import FileResolver

    opened = open_store(store)
    checkpoint = encoder_folder(encoder, opened)
    resolver = FileResolver(data_root=data)
    given = tuple(name.strip() for names in tasks or ["sts"] for name in names.split(","))
    stage = evaluation_of(checkpoint, revision=revision, pooling=pooling, tasks=given, max_length=max_length, resolver=resolver)

    from sentdist.stages.context import Context
    from sentdist.stages.local import build_here

    context = Context(
        store=opened, data_root=None if data is None else str(data), folders=tuple(resolver.folders.items()), keeps_embeddings=True
    )
    artifact = build_here(stage, context)
    table = empty_table(encoder, "task", "measure", "× 100")
    for task, measure, score in _score_lines(given, artifact.record.results):
        table.add_row(task, measure, score)
    open_console().print(table)
    typer.echo(f"All measures and items: {opened.folder(artifact)}")


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
