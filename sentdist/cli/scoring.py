"""Commands that score encoders: evaluate, compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli.options import DataRoot, EncoderName, OutputFormat, StoreRoot, TaskNames, Workers, check_in_use, made_folder
from sentdist.cli.printing import empty_table, open_console, print_json, print_notes, sentence_progress, two_decimals
from sentdist.errors import DataError
from sentdist.inference.opening import encoder_use, open_store

if TYPE_CHECKING:
    from sentdist.inference.planned_scores import PlannedScores
    from sentdist.recipe.specs import EncoderUse
    from sentdist.report.evaluated import Compared, ScoreLine
    from sentdist.store.store import Artifact


def evaluate(
    encoder: EncoderName,
    task_names: TaskNames = None,
    workers: Workers = None,
    mteb: Annotated[
        list[str] | None,
        typer.Option("--mteb", metavar="TASK", help="Instead: tasks or a benchmark of mteb, or MODULE:CLASS of your own; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Output folder of --mteb, in mteb's format.")] = None,
    output: OutputFormat = "table",
    store: StoreRoot = None,
    data: DataRoot = None,
) -> None:
    """Score any encoder, ours or not."""
    use, is_json = encoder_use(encoder, store), output == "json"
    if mteb or out is not None:
        check_in_use({"--tasks": task_names, "--workers": workers}, needs="tasks without --mteb", is_given=False)
        _score_by_mteb(use, mteb or [], out, is_json=is_json)
        return
    from sentdist.api.verdicts import names_of
    from sentdist.inference.planned_scores import PlannedScores
    from sentdist.recipe.sections import Runtime

    opened, runtime = open_store(store), Runtime(engine="torch", workers=workers or 1)
    planned = PlannedScores.of(use, names_of(task_names or "sts"), store=opened, data=data, runtime=runtime)
    print_notes(*planned.notes, *(prompt.line for prompt in planned.prompts), err=is_json)
    artifact = _scored(planned, over_workers=workers is not None, is_quiet=is_json)

    from sentdist.report.evaluated import score_lines  # imports scipy: mistakes in names are reported before

    folder = opened.folder(artifact)
    lines = list(score_lines(planned.names, artifact.record.results, folder))
    if is_json:
        prompts = {role: text for role, text in planned.stage.prompts if text}
        about = {"encoder": encoder, "pooling": planned.pooling, **({"prompts": prompts} if prompts else {})}
        print_json({**about, "tasks": list(map(asdict, lines)), "folder": str(folder)})
    else:
        _print_scores(f"{encoder}, pooling {planned.pooling}", lines, folder)


def _print_scores(title: str, lines: Sequence[ScoreLine], folder: Path) -> None:
    table = empty_table(title, "task", "measure", "× 100", "95 % on other items", "n", "not scored")
    for line in lines:
        interval = "" if line.interval is None else f"{line.interval.low:.2f} to {line.interval.high:.2f}"
        together = f" ({line.num_groups:,} apart)" if line.num_groups < line.num_items else ""
        size = f"{line.num_items:,}{together}" if line.num_items else ""
        table.add_row(line.task, line.measure, two_decimals(line.score), interval, size, line.left_out)
    open_console().print(table)
    for line in lines:
        if line.why:
            typer.echo(f"{line.task} has no {line.measure}: {line.why}.")
    typer.echo(f"All measures and items: {folder}")


def _score_by_mteb(use: EncoderUse, tasks: list[str], out: Path | None, *, is_json: bool) -> None:
    """Have mteb score the encoder on its tasks."""
    if not tasks or out is None:
        raise DataError(
            where="sentdist evaluate", found="--mteb without --out" if tasks else "--out without --mteb", expected="--mteb TASK --out DIR",
            remedy="Scores of --tasks are kept in the store.",
        )  # fmt: skip
    from sentdist.inference.mteb_tasks import mteb_tasks, score_on_mteb
    from sentdist.inference.ready_encoder import LoadedEncoder

    found_tasks = mteb_tasks(tasks)  # before the encoder is loaded, to report mistakes at once
    made_folder(out)
    loaded = LoadedEncoder.load(use)
    if names := [name for name, text in loaded.prompts.texts.items() if text]:
        print_notes(f"encoder {use.checkpoint}: mteb's texts are read without its prompts ({', '.join(names)}).")
    scores = score_on_mteb(loaded, found_tasks, out)
    if is_json:
        print_json({"encoder": use.checkpoint, "tasks": list(map(asdict, scores)), "folder": str(out)})
        return
    table = empty_table(use.checkpoint, "task of mteb", "main score × 100")
    for score in scores:
        table.add_row(score.task, two_decimals(score.score))
    open_console().print(table)
    typer.echo(f"Results in mteb's format: {out}/results")


def compare(
    encoder: EncoderName,
    other: Annotated[str, typer.Argument(help="The encoder to compare with, named in the same way.", show_default=False)],
    task_names: TaskNames = None,
    output: OutputFormat = "table",
    store: StoreRoot = None,
    data: DataRoot = None,
) -> None:
    """Test whether two encoders differ, as reports do."""
    from sentdist.api.verdicts import compare_scores, names_of, planned_pair

    is_json = output == "json"
    uses = (encoder_use(encoder, store), encoder_use(other, store))
    first, second = planned = planned_pair(uses, names_of(task_names or "sts"), open_store(store), data)
    prompts = (prompt.line for prompt in (*first.prompts, *second.prompts))
    print_notes(*first.notes, *second.notes, *prompts, err=is_json)
    found = compare_scores((encoder, other), planned, [_scored(one, is_quiet=is_json) for one in planned])
    title = f"{encoder}, pooling {first.pooling} − {other}, pooling {second.pooling}"
    _print_compared(title, (encoder, other), found, is_json=is_json)


def _print_compared(title: str, labels: tuple[str, str], found: Compared, *, is_json: bool) -> None:
    if is_json:
        print_json({"first": labels[0], "second": labels[1], **asdict(found)})
        return
    from sentdist.report.comparisons import p_text

    table = empty_table(title, "task", "measure", "n", "first", "second", "difference", "95 % on other items", "p")
    for line in found.lines:
        one = line.difference
        interval = "" if one.low is None or one.high is None else f"{one.low:+.2f} to {one.high:+.2f}"
        chance = "" if one.table_p is None else p_text(one.table_p).removeprefix("= ")
        size = f"{line.num_items:,}" if line.num_items else ""
        table.add_row(line.task, line.measure, size, f"{line.ours:.2f}", f"{line.theirs:.2f}", f"{one.difference:+.2f}", interval, chance)
    open_console().print(table)
    for sentence in (found.sentence, *found.notes):
        typer.echo(sentence)


def _scored(planned: PlannedScores, *, over_workers: bool = False, is_quiet: bool = False) -> Artifact:
    """The scores, from the store or computed now. is_quiet: print notes on stderr."""
    if (known := planned.known) is not None:
        return known

    def tell(devices: str) -> None:
        print_notes(f"Encoding {devices}.", err=is_quiet)

    if over_workers:
        from sentdist.run.embed import embed_over_workers

        embed = partial(embed_over_workers, tell=tell)
    else:
        from sentdist.run.sharing import embed_on_all_gpus

        planned, devices = planned.here()
        embed = partial(embed_on_all_gpus, devices=devices, tell=tell)
    with sentence_progress("encoding", None) as advance:
        return planned.encoded(
            partial(embed, on_progress=advance), on_fit=lambda task: print_notes(f"{task}: fitting classifiers on its embeddings.")
        )
