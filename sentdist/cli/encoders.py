"""Commands that use an encoder: encode, similarity, export, pin, push."""

from __future__ import annotations

import shlex
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli.options import (
    EncoderName,
    EncoderRevision,
    EncodingPrecision,
    GpusPerWorker,
    GpuType,
    MaxLength,
    Overwrite,
    OwnPooling,
    RelationWeights,
    SentencePrompt,
    StoreRoot,
    TextColumn,
    check_choice,
    check_in_use,
    given_names,
    named_gpus,
    trainings,
    weights_of,
)
from sentdist.cli.printing import (
    devices_here,
    empty_table,
    found_texts,
    look_through,
    open_console,
    sentence_progress,
    tell_of_encoder,
    tell_prompts,
    tell_rows,
)
from sentdist.errors import DataError, brief, counted
from sentdist.files import disk_size, is_file_of_sentences
from sentdist.inference.opening import encoder_use, open_store
from sentdist.learning.encoder.declared import ends_in_normalize, named_prompts
from sentdist.learning.encoder.find_checkpoint import find_checkpoint

if TYPE_CHECKING:
    from sentdist.data.texts import Texts
    from sentdist.inference.opening import Prompt
    from sentdist.inference.ready_encoder import EmbeddedBatches, LoadedEncoder
    from sentdist.plan.sections import Runtime
    from sentdist.plan.specs import EncoderUse


DIRECTIONS = ("max_both", "one")  # the first is the default


def encode(
    encoder: EncoderName,
    file: Annotated[
        str, typer.Argument(help="Sentences: .txt (one a line), .parquet, .arrow, .csv(.gz), .tsv, .jsonl, .json; - for standard input.")
    ],
    out: Annotated[Path, typer.Option("--out", help="OUT.npy, or OUT.parquet with ids.", show_default=False)],
    column: TextColumn = None,
    id_column: Annotated[
        str | None,
        typer.Option("--id", help="Column of ids to write beside the embeddings in Parquet; rows without a sentence are left out."),
    ] = None,
    normalize: Annotated[
        bool,
        typer.Option(
            "--normalize",
            help="Embeddings of length 1. Without it they are not normalized, even if the checkpoint has sentence-transformers do so.",
        ),
    ] = False,
    prompt: SentencePrompt = None,
    dtype: Annotated[str, typer.Option("--dtype", help="Type on disk: float32 or float16.")] = "float32",
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Encode on this many workers of the Ray cluster.")] = None,
    gpus_per_worker: GpusPerWorker = None,
    gpu_type: GpuType = None,
    precision: EncodingPrecision = "fp32",
    max_length: MaxLength = None,
    pooling: OwnPooling = None,
    revision: EncoderRevision = None,
    overwrite: Overwrite = False,
    store: StoreRoot = None,
) -> None:
    """Write the embeddings of a file of sentences.

    The file may have any size: it is read, embedded and written in batches.
    """
    from sentdist.data.cells import LeftOut
    from sentdist.inference.embedding_file import DTYPES, SUFFIXES
    from sentdist.inference.export import check_output

    check_choice("--dtype", dtype, DTYPES)
    check_in_use({"--gpus-per-worker": gpus_per_worker, "--gpu-type": gpu_type}, needs="--workers", is_given=workers is not None)
    gpus = named_gpus(gpus_per_worker, gpu_type)
    check_output(out, suffixes=SUFFIXES, overwrite=overwrite)
    if id_column is not None and out.suffix != ".parquet":
        raise DataError(where="--id", found=f"{out.name}", expected="OUT.parquet, which can hold ids", remedy="Leave --id out.")
    _check_order(encoder, file)
    left_out = None if id_column is None else LeftOut()  # ids identify the rows
    # Before torch is loaded, so that mistakes are reported at once.
    texts = found_texts(file, columns=given_names(column), id_column=id_column, left_out=left_out)
    if texts.others:
        texts = replace(texts, or_else=f" With ids they are left out: --id {shlex.quote(texts.others[0])} --out {out.stem}.parquet.")
    use = encoder_use(encoder, store, revision=revision, pooling=pooling, max_length=max_length, precision=precision, normalize=normalize)
    use, before = _with_prompt(use, prompt)
    num_rows = look_through(texts) or texts.num_rows

    from sentdist.execution.parallel.sharing import shared_out
    from sentdist.inference.ready_encoder import LoadedEncoder, encode_file

    with shared_out(num_rows or None, workers=workers, gpus=gpus) as runtime:
        loaded, done = LoadedEncoder.load(use) if runtime is None else LoadedEncoder.beside_workers(use), 0
        devices, batches = _how_encoded(loaded, runtime)
        typer.echo(f"Encoding {devices}.")
        tell_prompts(before, err=False)
        started = time.perf_counter()
        with sentence_progress("encoding", num_rows) as advance:
            for done in encode_file(loaded, texts, out, dtype=dtype, batches=batches):
                advance(done)
        seconds = time.perf_counter() - started
    tell_of_encoder(loaded)
    tell_rows(texts)
    typer.echo(f"{out}: {counted(done, 'embedding')} of width {loaded.width}, {dtype}; {seconds:.1f} s, {done / seconds:,.0f} sentences/s")


def _how_encoded(loaded: LoadedEncoder, runtime: Runtime | None) -> tuple[str, EmbeddedBatches | None]:
    """A description of the devices, and the batches of embeddings if workers of this runtime make them."""
    if runtime is None:
        return devices_here(), None
    from sentdist.execution.parallel.file_encoder import WorkerEncoding

    on_cluster = WorkerEncoding.on_cluster(loaded, runtime)
    return on_cluster.devices, on_cluster.batches


def similarity(
    encoder: EncoderName,
    first: Annotated[str, typer.Argument(metavar="A", help="A sentence, or a file of sentences (or of pairs).", show_default=False)],
    second: Annotated[str | None, typer.Argument(metavar="B", help="Another one; without B, A has both columns.")] = None,
    column: Annotated[
        list[str] | None, typer.Option("--column", help="Column of sentences in a table; twice for a file of pairs, or for two files.")
    ] = None,
    relation: RelationWeights = None,
    directions: Annotated[
        str | None,
        typer.Option(
            "--directions",
            help=f"With --relation: max_both (the greater of both directions) or one (A as head).  [default: {DIRECTIONS[0]}]",
        ),
    ] = None,
    prompt: SentencePrompt = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the pairs with their scores to OUT.csv or OUT.parquet.")] = None,
    precision: EncodingPrecision = "fp32",
    max_length: MaxLength = None,
    pooling: OwnPooling = None,
    revision: EncoderRevision = None,
    overwrite: Overwrite = False,
    store: StoreRoot = None,
) -> None:
    """Print the similarity of sentences.

    Of two sentences, or of the pairs in one or two files: one score a line, by cosine or by relations.
    """
    from sentdist.data.texts import looks_like_a_file
    from sentdist.inference.export import check_output

    weights = weights_of(relation or [])
    check_in_use({"--directions": directions}, needs="--relation", is_given=bool(weights))
    check_in_use({"--overwrite": overwrite}, needs="--out", is_given=out is not None)
    directions = directions or DIRECTIONS[0]
    check_choice("--directions", directions, DIRECTIONS)
    if out is not None:
        check_output(out, suffixes=(".csv", ".parquet"), overwrite=overwrite)
    use = encoder_use(encoder, store, revision=revision, pooling=pooling, max_length=max_length, precision=precision)
    if second is None and len(first.split()) > 1 and not looks_like_a_file(first):
        raise DataError(
            where="sentdist similarity", found=f"one sentence, {brief(first)}", expected="two, or a file of pairs",
            remedy="Add the other one.",
        )  # fmt: skip
    if second is not None and not looks_like_a_file(first) and not looks_like_a_file(second):
        if out is not None or column:
            given = "--column" if column else "--out"
            raise DataError(where=given, found="two sentences", expected="files of sentences", remedy=f"Leave {given} out.")
        _print_pair(*_with_prompt(use, prompt), first, second, weights, directions)
        return
    files = _pair_files(first, second, column or [])
    _score_files(*_with_prompt(use, prompt), files, weights, directions, out)


def export(
    encoder: EncoderName,
    to: Annotated[Path, typer.Option("--to", help="A new folder.", show_default=False)],
    kind: Annotated[
        str, typer.Option("--format", help="sentence-transformers, or onnx: a graph with pooling inside.")
    ] = "sentence-transformers",
    pooling: OwnPooling = None,
    revision: EncoderRevision = None,
    store: StoreRoot = None,
) -> None:
    """Write an encoder for use elsewhere.

    As a folder that sentence-transformers loads, with the encoder's prompts (training adds none), or as an ONNX graph with its tokenizer.
    """
    from sentdist.api.encoders import as_trained, export_encoder

    check_choice("--format", kind, ("sentence-transformers", "onnx"))
    use = encoder_use(encoder, store, revision=revision, pooling=pooling, max_length=None, precision="fp32")
    folder = find_checkpoint(use.checkpoint, revision=use.revision)  # before torch is loaded, to report mistakes at once

    if kind == "onnx":
        from sentdist.inference.export_formats import export_graph

        difference = export_graph(as_trained(use, open_store(store)), to)
        typer.echo(
            f"{to}/model.onnx: input_ids and attention_mask in, sentence_embedding out; embeddings agree to {difference:.0e} of their "
            "largest number"
        )
        if any(named_prompts(folder)[0].values()):
            typer.echo("The graph does not include the encoder's prompts: add them before sentences.")
    else:
        export_encoder(use, to, open_store(store))
        length = "; its embeddings have length 1, as those of `encode --normalize`" if ends_in_normalize(to) else ""
        typer.echo(f'{to}: load it with SentenceTransformer("{to}"){length}')


def _with_prompt(use: EncoderUse, asked: str | None) -> tuple[EncoderUse, Prompt]:
    """The use of an encoder with the prompt for sentences, and the prompt; without loading torch."""
    from sentdist.inference.opening import Prompts

    folder = find_checkpoint(use.checkpoint, revision=use.revision)
    prompt = Prompts.of(folder, encoder=f"encoder {use.checkpoint}").of_sentences(asked)
    return replace(use, prompt=prompt.text), prompt


def _print_pair(use: EncoderUse, prompt: Prompt, first: str, second: str, weights: dict[str, float], directions: str) -> None:
    """Print one score, or without weights the cosine and the cosines by each relation of the encoder."""
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.inference.similarity import cosines_by_relation, pair_scorer

    loaded = LoadedEncoder.load(use)
    tell_prompts(prompt)
    score = float(pair_scorer(loaded, weights, directions=directions).scores([first], [second])[0])
    tell_of_encoder(loaded)
    by_relation = [] if weights else cosines_by_relation(loaded, first, second)
    if not by_relation:
        typer.echo(f"{score:.6f}")
        return
    table = empty_table(None, "relation", "A as head", "B as head")
    table.add_row("none (cosine)", f"{score:.6f}", f"{score:.6f}")
    for found in by_relation:
        table.add_row(found.relation, f"{found.forward:.6f}", f"{found.backward:.6f}")
    open_console().print(table)


def _score_files(
    use: EncoderUse, prompt: Prompt, files: tuple[Texts, Texts | None], weights: dict[str, float], directions: str, out: Path | None
) -> None:
    """Print the score of every pair, or write pairs and scores to `out`."""
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.inference.similarity import check_lengths, pair_batches, pair_scorer, write_scores

    first, second = files
    num_rows = look_through(first)
    if second is not None:
        check_lengths((first, second), (num_rows, look_through(second)))
    scorer, done = pair_scorer(LoadedEncoder.load(use), weights, directions=directions), 0
    tell_prompts(prompt)
    if out is None:
        for batch in pair_batches(*files):
            typer.echo("\n".join(f"{score:.6f}" for score in scorer.scores(*batch)))
        _tell_of_pairs(scorer.loaded, files)
        return
    started = time.perf_counter()
    with sentence_progress("scoring pairs", num_rows or first.num_rows) as advance:
        for done in write_scores(scorer, pair_batches(*files), out):
            advance(done)
    _tell_of_pairs(scorer.loaded, files)
    typer.echo(f"{out}: {counted(done, 'pair')}, {time.perf_counter() - started:.1f} s")


def _tell_of_pairs(loaded: LoadedEncoder, files: tuple[Texts, Texts | None]) -> None:
    tell_of_encoder(loaded)
    for file in files:
        if file is not None:
            tell_rows(file)


def _check_order(encoder: str, file: str) -> None:
    """Raise DataError if a file is given as the encoder."""
    if is_file_of_sentences(encoder):
        raise DataError(
            where=encoder, found="a file of sentences", expected="an encoder first, then the file",
            remedy=f"Swap them: sentdist encode {shlex.quote(file)} {shlex.quote(encoder)} …",
        )  # fmt: skip


def _pair_files(first: str, second: str | None, columns: list[str]) -> tuple[Texts, Texts | None]:
    if second is None:
        return found_texts(first, columns=columns, num_columns=2), None
    if len(columns) > 2:
        raise DataError(where="--column", found=f"{len(columns)} names", expected="one for each file", remedy="Name two.")
    return found_texts(first, columns=columns[:1]), found_texts(second, columns=columns[-1:])


def pin(
    name: Annotated[str, typer.Argument(help="OWNER/NAME of an encoder, or hub:OWNER/NAME of a data set.", show_default=False)],
    revision: Annotated[str | None, typer.Option("--revision", help="A branch or tag.  [default: main]", show_default=False)] = None,
) -> None:
    """Print the current commit of a repository on the Hugging Face Hub.

    A recipe needs it beside the name, so that it stays reproducible.
    """
    from sentdist.inference.export import commit_of

    is_data = name.startswith("hub:")
    plain = name.removeprefix("hub:").partition(":")[0]
    commit = commit_of(plain, "dataset" if is_data else "model", revision=revision)
    typer.echo(commit)
    fields = (
        (f"corpus.source={name}", f"corpus.revision={commit}") if is_data else (f"encoder.checkpoint={plain}", f"encoder.revision={commit}")
    )
    typer.echo(f"In a command: {' '.join(f'--set {field}' for field in fields)}", err=True)


def push(
    encoder: Annotated[str, typer.Argument(help="Key or label of a training.", show_default=False, autocompletion=trainings)],
    to: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The repository; made if missing.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run/--send", help="Only print the card and the files, or send them.")] = True,
    private: Annotated[bool, typer.Option("--private/--public", help="Visibility of a new repository.")] = True,
    licence: Annotated[str | None, typer.Option("--licence", help="The hub's name for it, such as apache-2.0.", show_default=False)] = None,
    language: Annotated[
        str | None,
        typer.Option("--language", help="The hub's code for the texts' language.  [default: that of the base model]", show_default=False),
    ] = None,
    store: StoreRoot = None,
) -> None:
    """Send an encoder and its card to the Hugging Face Hub.

    The card has scores with intervals, data with leaks, settings, licence and citations. Without --send nothing leaves this machine.
    """
    from sentdist.api.encoders import card_of, export_encoder
    from sentdist.inference.export import check_name, send_folder

    check_name(to)
    opened = open_store(store)
    trained = opened.find(encoder, kind="train")
    card = card_of(trained, opened, name=to, licence=licence, language=(language,) if language else None)
    use = encoder_use(str(opened.folder(trained)), store, revision=None, pooling=None, max_length=None, precision="fp32")

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "encoder"
        export_encoder(use, folder, opened, card=card)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        if dry_run:
            typer.echo(card)
            for path in files:
                typer.echo(f"{path.relative_to(folder)}  {disk_size(path.stat().st_size)}")
            typer.echo(f"Nothing was sent. {counted(len(files), 'file')} to {to}: add --send.")
            return
        typer.echo(f"Sent: {send_folder(folder, to, private=private)}")
