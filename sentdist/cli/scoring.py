"""Commands that score encoders: evaluate."""

from __future__ import annotations

from typing import Annotated

import typer

from sentdist.cli.opening import encoder_folder, open_store
from sentdist.cli.options import DataRoot, EncoderName, EncoderRevision, StoreRoot
from sentdist.cli.printing import empty_table, open_console, two_decimals


def evaluate(
    encoder: EncoderName,
    tasks: Annotated[
        list[str] | None, typer.Option("--tasks", help="Tasks or groups; may be repeated.  [default: sts]", show_default=False)
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
    stage = evaluation_of(
        checkpoint, revision=revision, pooling=pooling, tasks=tuple(tasks or ["sts"]), max_length=max_length, resolver=resolver
    )

    from sentdist.stages.context import Context
    from sentdist.stages.local import build_here

    context = Context(store=opened, data_root=None if data is None else str(data), folders=tuple(resolver.folders.items()))
    artifact = build_here(stage, context)
    table = empty_table(encoder, "task", "score × 100")
    for task in stage.tasks:
        table.add_row(task.name, two_decimals(artifact.record.results[task.name]))
    scores = [float(value) for task in stage.tasks if isinstance(value := artifact.record.results[task.name], int | float)]
    table.add_row("average", two_decimals(sum(scores) / len(scores)) if scores else "–")
    open_console().print(table)
    typer.echo(f"All measures and items: {opened.folder(artifact)}")
