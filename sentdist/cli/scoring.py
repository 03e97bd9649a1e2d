"""Commands that score encoders: evaluate, compare."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli import completing
from sentdist.cli.mteb_scores import MtebSide, compare_by_mteb, score_by_mteb
from sentdist.cli.options import (
    DataRoot,
    DocumentPrompt,
    EncoderName,
    EncoderRevision,
    EncodingPrecision,
    GpusPerWorker,
    GpuType,
    MaxLength,
    OwnPooling,
    QueryPrompt,
    SentencePrompt,
    StoreRoot,
    check_choice,
    check_in_use,
    named_gpus,
)
from sentdist.cli.printing import sentence_progress, tell_prompts
from sentdist.cli.score_output import FORMATS, OutputFormat, print_compared, print_json, print_scores
from sentdist.errors import DataError
from sentdist.inference.opening import encoder_use, open_store
from sentdist.plan.specs import AskedPrompts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sentdist.inference.planned_scores import PlannedScores
    from sentdist.plan.specs import EncoderUse
    from sentdist.report.evaluated import Compared
    from sentdist.store.store import Artifact, ArtifactStore

ROPE = 0.5  # points within which two scores count as equal


def evaluate(
    encoder: EncoderName,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks",
            help="Tasks, groups (sts, transfer, retrieval, …) or KIND=SOURCE@SPLIT for data of your own, such as sts=pairs.tsv; "
            "own=faq.csv: the test rows that tune holds out of a file; with commas, or repeated.  [default: sts]",
            show_default=False,
            autocompletion=completing.tasks,
        ),
    ] = None,
    revision: EncoderRevision = None,
    pooling: OwnPooling = None,
    max_length: MaxLength = None,
    prompt: SentencePrompt = None,
    query_prompt: QueryPrompt = None,
    document_prompt: DocumentPrompt = None,
    precision: EncodingPrecision = "fp32",
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Encode on that many workers of the Ray cluster.")] = None,
    gpus_per_worker: GpusPerWorker = None,
    gpu_type: GpuType = None,
    mteb: Annotated[
        list[str] | None,
        typer.Option("--mteb", metavar="TASK", help="Instead: tasks or a benchmark of mteb, or MODULE:CLASS of your own; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where --mteb writes, in mteb's format.")] = None,
    output: OutputFormat = "table",
    store: StoreRoot = None,
    data: DataRoot = None,
) -> None:
    """Score any encoder, ours or not."""
    check_choice("--format", output, FORMATS)
    use = encoder_use(encoder, store, revision=revision, pooling=pooling, max_length=max_length, precision=precision)
    if mteb or out is not None:
        without = {
            "--tasks": tasks, "--workers": workers, "--gpus-per-worker": gpus_per_worker, "--gpu-type": gpu_type,
            "--prompt": prompt, "--query-prompt": query_prompt, "--document-prompt": document_prompt,
        }  # fmt: skip
        score_by_mteb(use, mteb or [], out, output=output, without=without)
        return
    check_in_use({"--gpus-per-worker": gpus_per_worker or None, "--gpu-type": gpu_type}, needs="--workers", is_given=workers is not None)

    opened = open_store(store)
    asked = AskedPrompts(sentence=prompt, query=query_prompt, document=document_prompt)
    planned = _planned("evaluate", use, tasks, opened, data, asked, workers=workers or 1, **named_gpus(gpus_per_worker, gpu_type))
    is_json = output == "json"
    for note in planned.notes:
        typer.echo(note, err=is_json)
    tell_prompts(*planned.prompts, err=is_json)
    artifact = _scored(planned, over_workers=workers is not None, is_quiet=is_json)

    from sentdist.report.evaluated import score_lines  # brings scipy: a mistake in a name is reported before

    folder = opened.folder(artifact)
    lines = list(score_lines(planned.names, artifact.record.results, folder))
    if is_json:
        prompts = {role: text for role, text in planned.stage.prompts if text}
        about = {"encoder": encoder, "pooling": planned.pooling, **({"prompts": prompts} if prompts else {})}
        print_json({**about, "tasks": list(map(asdict, lines)), "folder": str(folder)})
    else:
        print_scores(f"{encoder}, pooling {planned.pooling}", lines, folder)


def compare(
    encoder: EncoderName,
    other: Annotated[str, typer.Argument(help="The encoder that it is compared with, named in the same way.", show_default=False)],
    tasks: Annotated[
        list[str] | None,
        typer.Option("--tasks", help="As for `sentdist evaluate`.  [default: sts]", show_default=False, autocompletion=completing.tasks),
    ] = None,
    revision: EncoderRevision = None,
    other_revision: Annotated[str | None, typer.Option("--other-revision", help="Commit of the other's hub checkpoint.")] = None,
    pooling: OwnPooling = None,
    other_pooling: Annotated[str | None, typer.Option("--other-pooling", help="Pooling of the other, as --pooling for the first.")] = None,
    bayes: Annotated[bool, typer.Option("--bayes", help="Also how probable it is that one is better, here and on other tasks.")] = False,
    rope: Annotated[
        float | None, typer.Option(help=f"Points within which two scores count as equal, for --bayes.  [default: {ROPE:g}]", min=0.0)
    ] = None,
    max_length: MaxLength = None,
    prompt: SentencePrompt = None,
    query_prompt: QueryPrompt = None,
    document_prompt: DocumentPrompt = None,
    other_prompt: Annotated[str | None, typer.Option("--other-prompt", help="As --prompt, of the other.")] = None,
    other_query_prompt: Annotated[str | None, typer.Option("--other-query-prompt", help="As --query-prompt, of the other.")] = None,
    other_document_prompt: Annotated[
        str | None, typer.Option("--other-document-prompt", help="As --document-prompt, of the other.")
    ] = None,
    precision: EncodingPrecision = "fp32",
    mteb: Annotated[
        list[str] | None,
        typer.Option(
            "--mteb",
            metavar="TASK",
            help="Instead: on tasks of mteb, or MODULE:CLASS of your own; may be repeated.  [default: those of a folder of predictions]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where mteb writes what an encoder answers.")] = None,
    output: OutputFormat = "table",
    store: StoreRoot = None,
    data: DataRoot = None,
) -> None:
    """Say whether two encoders differ, by the test that reports use.

    Either may be a folder in which mteb has kept its predictions.
    """
    check_choice("--format", output, FORMATS)
    check_in_use({"--rope": rope}, needs="--bayes", is_given=bayes)
    opinion = _second_opinion(bayes, rope)
    prompts = (
        AskedPrompts(sentence=prompt, query=query_prompt, document=document_prompt),
        AskedPrompts(
            sentence=other_prompt,
            query=other_query_prompt,
            document=other_document_prompt,
            options=("--other-prompt", "--other-query-prompt", "--other-document-prompt"),
        ),
    )
    used = partial(encoder_use, store=store, max_length=max_length, precision=precision)
    use_first = partial(used, encoder, revision=revision, pooling=pooling)
    use_second = partial(used, other, revision=other_revision, pooling=other_pooling)
    sides = (
        MtebSide.of(encoder, use_first, **{"--revision": revision, "--pooling": pooling}),
        MtebSide.of(other, use_second, **{"--other-revision": other_revision, "--other-pooling": other_pooling}),
    )
    if mteb or out is not None or any(side.kept for side in sides):
        of_encoders = {"--max-length": max_length, "--precision": precision != "fp32"}
        without = {"--tasks": tasks} | {option: given for one in prompts for given, option in one.by_role.values()}
        compare_by_mteb(sides, mteb, out, opinion, output=output, of_encoders=of_encoders, without=without)
        return
    uses = (use_first(), use_second())
    _compare_by_tasks((encoder, other), open_store(store), uses, prompts, tasks, data, opinion=opinion, output=output)


def _compare_by_tasks(
    names: tuple[str, str],
    opened: ArtifactStore,
    uses: tuple[EncoderUse, EncoderUse],
    prompts: tuple[AskedPrompts, AskedPrompts],
    tasks: list[str] | None,
    data: Path | None,
    *,
    opinion: Callable[[Compared], Iterable[str]],
    output: str,
) -> None:
    """Score both encoders on our own tasks, where the store has no scores yet, and say how they differ. names: as they were given."""
    encoder, other = names
    first, second = (_planned("compare", use, tasks, opened, data, asked) for use, asked in zip(uses, prompts, strict=True))
    if first.stage.key == second.stage.key:
        raise DataError(where="sentdist compare", found=f"{encoder} twice", expected="two encoders", remedy="Name another one.")
    is_json = output == "json"
    for note in dict.fromkeys((*first.notes, *second.notes)):
        typer.echo(note, err=is_json)
    tell_prompts(*dict.fromkeys((*first.prompts, *second.prompts)), err=is_json)
    both = [_scored(planned, is_quiet=is_json) for planned in (first, second)]
    labels = (encoder, other)
    if encoder == other:
        differ = (first.pooling, second.pooling) if first.pooling != second.pooling else ("first", "second")
        labels = (f"{encoder} ({differ[0]})", f"{other} ({differ[1]})")

    from sentdist.report.evaluated import compare_evaluated, compared_measures, scored  # brings scipy

    measures = compared_measures(first.names)
    ours, theirs = (scored(one.record.results, opened.folder(one), measures) for one in both)
    found = compare_evaluated(labels, (ours, theirs), measures)
    print_compared(f"{encoder}, pooling {first.pooling} − {other}, pooling {second.pooling}", labels, found, opinion(found), output=output)


def _second_opinion(bayes: bool, rope: float | None) -> Callable[[Compared], Iterable[str]]:
    if not bayes:
        return lambda found: ()

    from sentdist.report.evaluated import second_opinion

    return partial(second_opinion, rope=ROPE if rope is None else rope)


def _planned(
    command: str,
    use: EncoderUse,
    tasks: list[str] | None,
    opened: ArtifactStore,
    data: Path | None,
    prompts: AskedPrompts,
    **runtime: float | str,
) -> PlannedScores:
    """The scores of an encoder on tasks, as they are typed."""
    from sentdist.inference.planned_scores import PlannedScores
    from sentdist.plan.runtime import Runtime

    given = [name.strip() for names in tasks or ["sts"] for name in names.split(",")]
    asked = Runtime.model_validate({"engine": "torch", **runtime})
    return PlannedScores.of(use, given, store=opened, data=data, runtime=asked, command=command, prompts=prompts)


def _scored(planned: PlannedScores, *, over_workers: bool = False, is_quiet: bool = False) -> Artifact:
    """The scores, from the store or made now. is_quiet: whether stdout is for the scores alone."""
    if (known := planned.known) is not None:
        return known

    def tell(devices: str) -> None:
        typer.echo(f"Encoding {devices}.", err=is_quiet)

    if over_workers:
        from sentdist.execution.parallel.embed import embed_over_workers

        embed = partial(embed_over_workers, tell=tell)
    else:
        from sentdist.execution.parallel.embed_shared import embed_on_all_gpus

        planned, devices = planned.here()
        embed = partial(embed_on_all_gpus, devices=devices, tell=tell)
    with sentence_progress("encoding", None) as advance:
        return planned.encoded(partial(embed, on_progress=advance), on_fit=_tell_fit)


def _tell_fit(task: str) -> None:
    typer.echo(f"{task}: fitting classifiers on its embeddings.", err=True)
