"""Commands that score encoders: evaluate, compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli import options
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
from sentdist.cli.printing import empty_table, open_console, sentence_progress, tell_prompts, two_decimals
from sentdist.errors import DataError
from sentdist.inference.opening import encoder_use, open_store
from sentdist.plan.specs import AskedPrompts

if TYPE_CHECKING:
    from sentdist.inference.mteb_items import Predictions
    from sentdist.inference.planned_scores import PlannedScores
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.plan.specs import EncoderUse
    from sentdist.report.evaluated import Compared, ScoreLine
    from sentdist.store.store import Artifact, ArtifactStore


FORMATS = ("table", "json")
OutputFormat = Annotated[
    str, typer.Option("--format", help="table, or json: all numbers unrounded, for other programs; notes go to stderr.")
]


def print_json(values: Mapping[str, object]) -> None:
    """Print a JSON object."""
    typer.echo(json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False))


def print_scores(title: str, lines: Sequence[ScoreLine], folder: Path) -> None:
    """Print a table of scores with its notes; folder: of the artifact."""
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


def print_compared(title: str, labels: tuple[str, str], found: Compared, opinion: Iterable[str], *, output: str) -> None:
    """Print a comparison as a table with sentences, or as JSON. opinion: sentences of a second test. output: one of FORMATS."""
    if output == "table":
        _print_differences(title, found)
        for sentence in (found.sentence, *found.notes, *opinion):
            typer.echo(sentence)
    else:
        print_json({"first": labels[0], "second": labels[1], **asdict(found), "second_opinion": list(opinion)})


def _print_differences(title: str, found: Compared) -> None:
    from sentdist.report.comparisons import p_text

    table = empty_table(title, "task", "measure", "n", "first", "second", "difference", "95 % on other items", "p")
    for line in found.lines:
        one = line.difference
        interval = "" if one.low is None or one.high is None else f"{one.low:+.2f} to {one.high:+.2f}"
        chance = "" if one.table_p is None else p_text(one.table_p).removeprefix("= ")
        size = f"{line.num_items:,}" if line.num_items else ""
        table.add_row(line.task, line.measure, size, f"{line.ours:.2f}", f"{line.theirs:.2f}", f"{one.difference:+.2f}", interval, chance)
    open_console().print(table)


@dataclass(frozen=True, kw_only=True)
class MtebSide:
    """One of the two sides of a comparison on mteb's tasks."""

    name: str
    kept: Predictions | None  # saved by mteb; None: an encoder, which mteb runs first
    use: Callable[[], EncoderUse]  # that encoder
    options: Mapping[str, object]  # given for this side only

    @classmethod
    def of(cls, name: str, use: Callable[[], EncoderUse], **options: object) -> MtebSide:
        from sentdist.inference.mteb_items import Predictions

        return cls(name=name, kept=Predictions.of(name), use=use, options=options)


def score_by_mteb(use: EncoderUse, tasks: list[str], out: Path | None, *, output: str, without: Mapping[str, object]) -> None:
    """Have mteb score the encoder on its tasks. without: values of options that have no effect then."""
    refused = next((name for name, value in without.items() if value), None)
    if not tasks or out is None or refused:
        found = "--out without --mteb" if not tasks else f"{refused} beside --mteb" if refused else "--mteb without --out"
        remedy = "Leave one of them out." if refused else "Add --out DIR."
        if not tasks:
            remedy = "Leave --out out: scores of --tasks are kept in the store."
        raise DataError(where="sentdist evaluate", found=found, expected="--mteb TASK --out DIR, or --tasks", remedy=remedy)
    _check_folder(out)

    from sentdist.inference.mteb_tasks import mteb_tasks, score_on_mteb

    found_tasks = mteb_tasks(tasks)  # before the encoder is loaded, to report mistakes at once
    scores = score_on_mteb(_loaded(use), found_tasks, out)
    if output == "json":
        print_json({"encoder": use.checkpoint, "tasks": list(map(asdict, scores)), "folder": str(out)})
        return
    table = empty_table(use.checkpoint, "task of mteb", "main score × 100")
    for score in scores:
        table.add_row(score.task, two_decimals(score.score))
    open_console().print(table)
    typer.echo(f"Results in mteb's format: {out}/results; predictions, for `sentdist compare`: {out}/predictions")


def compare_by_mteb(
    sides: tuple[MtebSide, MtebSide], tasks: list[str] | None, out: Path | None, opinion: Callable[[Compared], Iterable[str]],
    *, output: str, of_encoders: Mapping[str, object], without: Mapping[str, object],
) -> None:  # fmt: skip
    """Compare two sides by mteb's predictions; mteb first runs encoders, on the named tasks or those of the other side.

    of_encoders: options that have an effect only if a side is an encoder; without: options without effect.
    """
    encoders, folders = ([side for side in sides if (side.kept is None) is is_encoder] for is_encoder in (True, False))
    unused = {**without, **{name: value for side in folders for name, value in side.options.items()}}
    _check_options(encoders, {**unused, **({} if encoders else {**of_encoders, "--out": out})}, tasks, out)

    from sentdist.inference.mteb_items import predicted_scores
    from sentdist.inference.mteb_tasks import mteb_tasks
    from sentdist.report.evaluated import compare_evaluated

    named = tasks or [name for side in folders if side.kept is not None for name in side.kept.files]
    asked = mteb_tasks(named) if encoders else []  # before an encoder is loaded, to report mistakes at once
    first, second = (side.kept or _run(side.use(), asked, out) for side in sides)
    if first.folder.resolve() == second.folder.resolve():
        raise DataError(where="sentdist compare", found=f"{sides[0].name} twice", expected="two encoders", remedy="Name another one.")
    names = (sides[0].name, sides[1].name)
    labels = names if names[0] != names[1] else (f"{names[0]} (first)", f"{names[1]} (second)")
    with TemporaryDirectory() as place:
        scores = predicted_scores((first, second), tasks, Path(place))
        for note in scores.notes:
            typer.echo(note, err=output == "json")
        found = compare_evaluated(labels, scores.both, scores.measures)
    print_compared(f"{labels[0]} − {labels[1]}, by mteb's predictions", labels, found, opinion(found), output=output)


def _check_options(encoders: list[MtebSide], unused: Mapping[str, object], tasks: list[str] | None, out: Path | None) -> None:
    if (refused := next((name for name, value in unused.items() if value), None)) is not None:
        raise DataError(
            where="sentdist compare", found=f"{refused} beside predictions of mteb", expected="options for encoders that mteb runs",
            remedy="Leave it out: saved predictions keep their settings.",
        )  # fmt: skip
    if not encoders:
        return
    if out is None or (len(encoders) == 2 and not tasks):
        found = (
            "--out without --mteb"
            if out is not None
            else "--mteb without --out"
            if tasks
            else f"{encoders[0].name} beside predictions of mteb"
        )
        remedy = "Name tasks of mteb." if out is not None else "Add --out DIR for mteb's results and predictions."
        raise DataError(
            where="sentdist compare", found=found, expected="two folders of predictions, or --mteb TASK --out DIR", remedy=remedy
        )
    _check_folder(out)


def _run(use: EncoderUse, tasks: list[object], out: Path | None) -> Predictions:
    from sentdist.inference.mteb_items import Predictions
    from sentdist.inference.mteb_tasks import MtebEncoder, score_on_mteb

    assert out is not None, "checked before"
    loaded = _loaded(use)
    score_on_mteb(loaded, tasks, out)
    found = Predictions.of(str(MtebEncoder(loaded).predictions_below(out)))
    assert found is not None, "mteb has just written them"
    return found


def _loaded(use: EncoderUse) -> LoadedEncoder:
    """The encoder; prompts that mteb does not use are named on stderr."""
    from sentdist.inference.ready_encoder import LoadedEncoder

    loaded = LoadedEncoder.load(use)
    if names := [name for name, text in loaded.prompts.texts.items() if text]:
        typer.echo(f"encoder {use.checkpoint}: mteb's texts are read without its prompts ({', '.join(names)}).", err=True)
    return loaded


def _check_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise DataError(where=f"--out {out}", found="a file", expected="a folder, which is made if missing", remedy="Name a folder.")


ROPE = 0.5  # points within which two scores count as equal


def evaluate(
    encoder: EncoderName,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks",
            help="Tasks, groups (sts, transfer, retrieval, …) or KIND=SOURCE@SPLIT for data of your own, such as sts=pairs.tsv; "
            "own=faq.csv: the test rows that tune holds out of a file; separated by commas, or repeated.  [default: sts]",
            show_default=False,
            autocompletion=options.tasks,
        ),
    ] = None,
    revision: EncoderRevision = None,
    pooling: OwnPooling = None,
    max_length: MaxLength = None,
    prompt: SentencePrompt = None,
    query_prompt: QueryPrompt = None,
    document_prompt: DocumentPrompt = None,
    precision: EncodingPrecision = "fp32",
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Encode on this many workers of the Ray cluster.")] = None,
    gpus_per_worker: GpusPerWorker = None,
    gpu_type: GpuType = None,
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

    from sentdist.report.evaluated import score_lines  # imports scipy: mistakes in names are reported before

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
    other: Annotated[str, typer.Argument(help="The encoder to compare with, named in the same way.", show_default=False)],
    tasks: Annotated[
        list[str] | None,
        typer.Option("--tasks", help="As for `sentdist evaluate`.  [default: sts]", show_default=False, autocompletion=options.tasks),
    ] = None,
    revision: EncoderRevision = None,
    other_revision: Annotated[str | None, typer.Option("--other-revision", help="Commit of the other's hub checkpoint.")] = None,
    pooling: OwnPooling = None,
    other_pooling: Annotated[str | None, typer.Option("--other-pooling", help="Pooling of the other, as --pooling for the first.")] = None,
    bayes: Annotated[bool, typer.Option("--bayes", help="Also print the probability that one is better, here and on other tasks.")] = False,
    rope: Annotated[
        float | None, typer.Option(help=f"With --bayes: points within which two scores count as equal.  [default: {ROPE:g}]", min=0.0)
    ] = None,
    max_length: MaxLength = None,
    prompt: SentencePrompt = None,
    query_prompt: QueryPrompt = None,
    document_prompt: DocumentPrompt = None,
    other_prompt: Annotated[str | None, typer.Option("--other-prompt", help="As --prompt, for the other.")] = None,
    other_query_prompt: Annotated[str | None, typer.Option("--other-query-prompt", help="As --query-prompt, for the other.")] = None,
    other_document_prompt: Annotated[
        str | None, typer.Option("--other-document-prompt", help="As --document-prompt, for the other.")
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
    out: Annotated[Path | None, typer.Option("--out", help="Folder for mteb's results and predictions.")] = None,
    output: OutputFormat = "table",
    store: StoreRoot = None,
    data: DataRoot = None,
) -> None:
    """Test whether two encoders differ, as reports do.

    Either may be a folder of predictions saved by mteb.
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
    """Score both encoders on our tasks, unless the store has the scores, and print how they differ. names: as given."""
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
    """Plan the scores of an encoder on tasks as typed."""
    from sentdist.inference.planned_scores import PlannedScores
    from sentdist.plan.sections import Runtime

    given = [name.strip() for names in tasks or ["sts"] for name in names.split(",")]
    asked = Runtime.model_validate({"engine": "torch", **runtime})
    return PlannedScores.of(use, given, store=opened, data=data, runtime=asked, command=command, prompts=prompts)


def _scored(planned: PlannedScores, *, over_workers: bool = False, is_quiet: bool = False) -> Artifact:
    """The scores, from the store or computed now. is_quiet: print notes on stderr."""
    if (known := planned.known) is not None:
        return known

    def tell(devices: str) -> None:
        typer.echo(f"Encoding {devices}.", err=is_quiet)

    if over_workers:
        from sentdist.execution.parallel.embed import embed_over_workers

        embed = partial(embed_over_workers, tell=tell)
    else:
        from sentdist.execution.parallel.sharing import embed_on_all_gpus

        planned, devices = planned.here()
        embed = partial(embed_on_all_gpus, devices=devices, tell=tell)
    with sentence_progress("encoding", None) as advance:
        return planned.encoded(partial(embed, on_progress=advance), on_fit=_tell_fit)


def _tell_fit(task: str) -> None:
    typer.echo(f"{task}: fitting classifiers on its embeddings.", err=True)
