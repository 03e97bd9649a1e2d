"""Commands that use an encoder: encode (files of sentences, or pairs), export."""

from __future__ import annotations

import shlex
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sentdist.cli.options import EncoderName, RelationWeights, StoreRoot, Workers, check_in_use, weights_of
from sentdist.cli.printing import (
    devices_here,
    found_texts,
    look_through,
    sentence_progress,
    tell_of_encoder,
    tell_prompts,
    tell_rows,
)
from sentdist.errors import DataError, counted, listed
from sentdist.files import disk_size, is_file_of_sentences
from sentdist.inference.opening import Prompts, encoder_use, open_store
from sentdist.learning.encoder.declared import Checkpoint
from sentdist.learning.encoder.find_checkpoint import find_checkpoint

if TYPE_CHECKING:
    from sentdist.data.texts import Texts
    from sentdist.inference.opening import Prompt
    from sentdist.inference.ready_encoder import EmbeddedBatches, LoadedEncoder
    from sentdist.recipe.sections import Runtime
    from sentdist.recipe.specs import EncoderUse


def encode(
    encoder: EncoderName,
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Sentences: .txt (one a line), .parquet, .arrow, .csv(.gz), .tsv, .jsonl, .json; - for standard input.  With --pairs: two "
            "sentences, or a file of pairs.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="OUT.npy, or OUT.parquet with ids; of pairs OUT.csv or OUT.parquet, else printed.", show_default=False),
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Print the similarity of pairs instead, by cosine or by relations.")] = False,
    column: Annotated[list[str] | None, typer.Option("--column", help="Column of sentences in a table; twice for a file of pairs.")] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column of ids to write to Parquet; rows without a sentence are then left out.")
    ] = None,
    relation: RelationWeights = None,
    dtype: Annotated[Literal["float32", "float16"], typer.Option("--dtype", help="Type of the embeddings on disk.")] = "float32",
    workers: Workers = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
    store: StoreRoot = None,
) -> None:
    """Write embeddings, or the similarity of pairs.

    A file may have any size: it is read, embedded and written in batches.
    """
    check_in_use({"--overwrite": overwrite}, needs="--out", is_given=out is not None)
    if pairs:
        check_in_use(
            {"--id": id_column, "--workers": workers, "--dtype": dtype != "float32"}, needs="a file without --pairs", is_given=False
        )
        _score_pairs(encoder_use(encoder, store), texts, column or [], weights_of(relation or []), out, overwrite=overwrite)
        return
    check_in_use({"--relation": relation}, needs="--pairs", is_given=False)
    if len(texts) > 1 or len(column or []) > 1 or out is None:
        found = "no --out" if out is None else listed([*texts, *(f"--column {name}" for name in column or [])])
        raise DataError(where="sentdist encode", found=found, expected="one file, one column, and --out", remedy="For pairs add --pairs.")
    _encode_file(encoder, texts[0], out, column or [], id_column, dtype=dtype, workers=workers, overwrite=overwrite, store=store)


def _encode_file(
    encoder: str, file: str, out: Path, columns: list[str], id_column: str | None, *, dtype: str, workers: int | None, overwrite: bool,
    store: str | None,
) -> None:  # fmt: skip
    from sentdist.data.cells import LeftOut
    from sentdist.inference.embedding_file import SUFFIXES
    from sentdist.inference.export import check_output

    check_output(out, suffixes=SUFFIXES, overwrite=overwrite)
    if id_column is not None and out.suffix != ".parquet":
        raise DataError(where="--id", found=f"{out.name}", expected="OUT.parquet, which can hold ids", remedy="Leave --id out.")
    if is_file_of_sentences(encoder):
        raise DataError(
            where=encoder, found="a file of sentences", expected="an encoder first, then the file",
            remedy=f"Swap them: sentdist encode {shlex.quote(file)} {shlex.quote(encoder)} …",
        )  # fmt: skip
    left_out = None if id_column is None else LeftOut()  # ids identify the rows
    # Before torch is loaded, so that mistakes are reported at once.
    texts = found_texts(file, columns=columns, id_column=id_column, left_out=left_out)
    if texts.others:
        texts = replace(texts, or_else=f" With ids they are left out: --id {shlex.quote(texts.others[0])} --out {out.stem}.parquet.")
    use, before = _with_prompt(encoder_use(encoder, store))
    num_rows = look_through(texts) or texts.num_rows

    from sentdist.inference.ready_encoder import LoadedEncoder, encode_file
    from sentdist.run.parallel.sharing import shared_out

    with shared_out(num_rows or None, workers=workers) as runtime:
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
    from sentdist.run.parallel.file_encoder import WorkerEncoding

    on_cluster = WorkerEncoding.on_cluster(loaded, runtime)
    return on_cluster.devices, on_cluster.batches


def _with_prompt(use: EncoderUse) -> tuple[EncoderUse, Prompt]:
    """The use of an encoder with the prompt for sentences, and the prompt; without loading torch."""
    prompt = Prompts.of(Checkpoint.open(find_checkpoint(use.checkpoint, revision=use.revision)), use).of_sentences()
    return replace(use, prompt=prompt.text), prompt


def _score_pairs(
    use: EncoderUse, texts: list[str], columns: list[str], weights: dict[str, float], out: Path | None, *, overwrite: bool
) -> None:
    """Print the similarity of two sentences, or of the pairs in a file; or write the pairs with their scores."""
    from sentdist.data.texts import looks_like_a_file
    from sentdist.inference.export import check_output

    if len(texts) > 2 or (len(texts) == 2) is looks_like_a_file(texts[0]):
        raise DataError(
            where="sentdist encode --pairs",
            found=listed(texts),
            expected="two sentences, or one file of pairs",
            remedy="Quote each sentence.",
        )
    if out is not None:
        check_output(out, suffixes=(".csv", ".parquet"), overwrite=overwrite)
    if len(texts) == 1:
        _score_file(*_with_prompt(use), found_texts(texts[0], columns=columns, num_columns=2), weights, out)
        return
    check_in_use({"--out": out, "--column": columns or None}, needs="a file of pairs", is_given=False)
    _print_pair(*_with_prompt(use), texts[0], texts[1], weights)


def _print_pair(use: EncoderUse, prompt: Prompt, first: str, second: str, weights: dict[str, float]) -> None:
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.inference.similarity import pair_scorer

    loaded = LoadedEncoder.load(use)
    tell_prompts(prompt)
    typer.echo(f"{pair_scorer(loaded, weights).scores([first], [second])[0]:.6f}")
    tell_of_encoder(loaded)


def _score_file(use: EncoderUse, prompt: Prompt, file: Texts, weights: dict[str, float], out: Path | None) -> None:
    """Print the score of every pair, or write pairs and scores to `out`."""
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.inference.similarity import pair_batches, pair_scorer, write_scores

    num_rows = look_through(file)
    scorer, done, started = pair_scorer(LoadedEncoder.load(use), weights), 0, time.perf_counter()
    tell_prompts(prompt)
    if out is None:
        for batch in pair_batches(file):
            typer.echo("\n".join(f"{score:.6f}" for score in scorer.scores(*batch)))
    else:
        with sentence_progress("scoring pairs", num_rows or file.num_rows) as advance:
            for done in write_scores(scorer, pair_batches(file), out):
                advance(done)
    tell_of_encoder(scorer.loaded)
    tell_rows(file)
    if out is not None:
        typer.echo(f"{out}: {counted(done, 'pair')}, {time.perf_counter() - started:.1f} s")


def export(
    encoder: EncoderName,
    out: Annotated[Path | None, typer.Option("--out", help="A new folder.", show_default=False)] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="An ONNX graph with pooling inside and its tokenizer.")] = False,
    to_hub: Annotated[
        str | None,
        typer.Option(
            "--to-hub",
            metavar="OWNER/NAME",
            show_default=False,
            help="Show what this repository of the Hugging Face Hub would get: its files and a card with scores, data and leaks.",
        ),
    ] = None,
    send: Annotated[bool, typer.Option("--send", help="Send it there. A new repository is private.")] = False,
    licence: Annotated[
        str | None, typer.Option("--licence", help="For the card, by the hub's name, such as apache-2.0.", show_default=False)
    ] = None,
    store: StoreRoot = None,
) -> None:
    """Write an encoder for use elsewhere.

    As a folder for sentence-transformers with the encoder's prompts (training adds none), as an ONNX graph, or to the Hugging Face Hub.
    """
    if (out is None) == (to_hub is None):
        raise DataError(
            where="sentdist export", found="both" if out else "neither", expected="--out or --to-hub", remedy="Use one of them."
        )
    check_in_use({"--send": send, "--licence": licence}, needs="--to-hub", is_given=to_hub is not None)
    check_in_use({"--onnx": onnx}, needs="--out", is_given=out is not None)
    if to_hub is not None:
        _to_hub(encoder, to_hub, licence, store, send=send)
        return

    from sentdist.api.encoders import as_trained, export_encoder

    assert out is not None, "checked above"
    use = encoder_use(encoder, store)
    folder = find_checkpoint(use.checkpoint, revision=use.revision)  # before torch is loaded, to report mistakes at once
    if not onnx:
        export_encoder(use, out, open_store(store))
        length = "; its embeddings have length 1" if Checkpoint.open(out).is_normalized else ""
        typer.echo(f'{out}: load it with SentenceTransformer("{out}"){length}')
        return
    from sentdist.inference.export_formats import export_graph

    difference = export_graph(as_trained(use, open_store(store)), out)
    typer.echo(
        f"{out}/model.onnx: input_ids and attention_mask in, sentence_embedding out; embeddings agree to {difference:.0e} of their "
        "largest number"
    )
    if any(Checkpoint.open(folder).prompts.values()):
        typer.echo("The graph does not include the encoder's prompts: add them before sentences.")


def _to_hub(encoder: str, to: str, licence: str | None, store: str | None, *, send: bool) -> None:
    """Send a training and its card to the hub, or show both; the card keeps the language of the base model's card."""
    from sentdist.api.encoders import card_of, export_encoder
    from sentdist.inference.export import check_name, send_folder

    check_name(to)
    opened = open_store(store)
    trained = opened.find(encoder, kind="train")
    card = card_of(trained, opened, name=to, licence=licence)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "encoder"
        export_encoder(encoder_use(str(opened.folder(trained)), store), folder, opened, card=card)
        if send:
            typer.echo(f"Sent: {send_folder(folder, to)}")
            return
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        typer.echo(card)
        for path in files:
            typer.echo(f"{path.relative_to(folder)}  {disk_size(path.stat().st_size)}")
        typer.echo(f"Nothing was sent. {counted(len(files), 'file')} to {to}: add --send.")
