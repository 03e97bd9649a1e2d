"""Commands that use an encoder: encode (files of sentences, or pairs), search, export."""

from __future__ import annotations

import tempfile
import time
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sentdist.cli.options import EncoderName, OutputFormat, RelationWeights, StoreRoot, Workers, check_in_use, weights_of
from sentdist.cli.printing import (
    empty_table,
    found_texts,
    look_through,
    open_console,
    print_json,
    print_notes,
    print_notes_on,
    sentence_progress,
)
from sentdist.errors import DataError, counted, listed
from sentdist.files import disk_size
from sentdist.inference.opening import encoder_use, open_store

if TYPE_CHECKING:
    from sentdist.inference.ready_encoder import LoadedEncoder
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
    from sentdist.inference.export import check_output

    check_in_use({"--overwrite": overwrite}, needs="--out", is_given=out is not None)
    if pairs:
        only_without = {"--id": id_column, "--workers": workers, "--dtype": dtype != "float32"}
        check_in_use(only_without, needs="a file without --pairs", is_given=False)
        if out is not None:
            check_output(out, suffixes=(".csv", ".parquet"), overwrite=overwrite)
        _score_pairs(encoder_use(encoder, store), texts, column or [], weights_of(relation), out)
        return
    check_in_use({"--relation": relation}, needs="--pairs", is_given=False)
    if len(texts) > 1 or len(column or []) > 1 or out is None:
        found = "no --out" if out is None else listed([*texts, *(f"--column {name}" for name in column or [])])
        raise DataError(where="sentdist encode", found=found, expected="one file, one column, and --out", remedy="For pairs add --pairs.")
    check_output(out, suffixes=(".npy", ".parquet") if id_column is None else (".parquet",), overwrite=overwrite)
    _encode_file(encoder_use(encoder, store), texts[0], out, column or [], id_column, dtype=dtype, workers=workers)


def _encode_file(
    use: EncoderUse, file: str, out: Path, columns: list[str], id_column: str | None, *, dtype: str, workers: int | None
) -> None:
    from sentdist.data.cells import LeftOut

    # Before torch is loaded, so that mistakes are reported at once. With ids, rows may be left out.
    texts = found_texts(file, columns=columns, id_column=id_column, left_out=None if id_column is None else LeftOut())
    num_rows = look_through(texts) or texts.num_rows

    from sentdist.inference.ready_encoder import encode_file
    from sentdist.run.sharing import shared_out

    with shared_out(num_rows or None, workers=workers) as runtime:
        loaded, done = _loaded(use, runtime), 0
        prompt = loaded.prompts.of_sentences()
        loaded = loaded.with_prompt(prompt.text)
        batches, devices = None, _devices_here()
        if runtime is not None:
            from sentdist.run.embed import WorkerEncoding

            on_cluster = WorkerEncoding(loaded, runtime)
            batches, devices = on_cluster.batches, on_cluster.devices
        print_notes(f"Encoding {devices}.", prompt.line, err=False)
        started = time.perf_counter()
        with sentence_progress("encoding", num_rows) as advance:
            for done in encode_file(loaded, texts, out, dtype=dtype, batches=batches):
                advance(done)
        seconds = time.perf_counter() - started
    print_notes_on(loaded, texts)
    typer.echo(f"{out}: {counted(done, 'embedding')} of width {loaded.width}, {dtype}; {seconds:.1f} s, {done / seconds:,.0f} sentences/s")


def _loaded(use: EncoderUse, runtime: Runtime | None) -> LoadedEncoder:
    """The encoder in this process; on the CPU if workers of this runtime do the work."""
    from sentdist.inference.ready_encoder import LoadedEncoder

    return LoadedEncoder.load(use) if runtime is None else LoadedEncoder.beside_workers(use)


def _devices_here() -> str:
    """The device of this process, and idle ones with the reason."""
    from sentdist.recipe.sections import Runtime
    from sentdist.stages.fit import on_this_machine

    return on_this_machine(Runtime())[1]


def _score_pairs(use: EncoderUse, texts: list[str], columns: list[str], weights: dict[str, float], out: Path | None) -> None:
    """Print the similarity of two sentences, or of the pairs in a file; or write the pairs with their scores."""
    if len(texts) > 2 or (len(texts) == 2 and all(isfile(text) for text in texts)):  # a Path would raise for a long sentence
        raise DataError(where="--pairs", found=listed(texts), expected="two sentences, or one file of pairs", remedy="Quote sentences.")
    file = found_texts(texts[0], columns=columns, num_columns=2) if len(texts) == 1 else None
    if file is None:
        check_in_use({"--out": out, "--column": columns or None}, needs="a file of pairs", is_given=False)
    num_rows = look_through(file) or file.num_rows if file else 1

    from sentdist.inference.similarity import pair_batches, pair_scorer, write_scores

    loaded = _loaded(use, None)
    prompt = loaded.prompts.of_sentences()
    scorer, done, started = pair_scorer(loaded.with_prompt(prompt.text), weights), 0, time.perf_counter()
    print_notes(prompt.line)
    batches = pair_batches(file) if file else iter([(texts[:1], texts[1:])])
    if out is None:
        for batch in batches:
            typer.echo("\n".join(f"{score:.6f}" for score in scorer.scores(*batch)))
    else:
        with sentence_progress("scoring pairs", num_rows) as advance:
            for done in write_scores(scorer, batches, out):
                advance(done)
        typer.echo(f"{out}: {counted(done, 'pair')}, {time.perf_counter() - started:.1f} s")
    print_notes_on(loaded, file)


def search(
    encoder: EncoderName,
    queries: Annotated[list[str] | None, typer.Argument(metavar="QUERY", help="Sentences to search for.", show_default=False)] = None,
    corpus: Annotated[
        str | None,
        typer.Option("--corpus", help="Sentences to search in, a file of any size, or - for standard input.", show_default=False),
    ] = None,
    embeddings: Annotated[
        Path | None, typer.Option("--embeddings", help="Embeddings of the corpus, as `sentdist encode` writes them (.npy).")
    ] = None,
    query_file: Annotated[str | None, typer.Option("--queries", help="A file of queries, or - for standard input.")] = None,
    column: Annotated[str | None, typer.Option("--column", help="Column of sentences in a table; not needed if it has one column.")] = None,
    show: Annotated[
        list[str] | None, typer.Option("--show", help="Another column of the corpus to show with each hit; may be repeated.")
    ] = None,
    depth: Annotated[int, typer.Option("-k", "--top", min=1, help="Hits for each query.")] = 10,
    output: OutputFormat = "table",
    relation: RelationWeights = None,
    workers: Workers = None,
    store: StoreRoot = None,
) -> None:
    """Find the sentences nearest to queries.

    Exact search by cosine or by relations, in a corpus of any size.
    """
    from sentdist.data.cells import LeftOut

    weights = weights_of(relation)
    if (corpus is None and embeddings is None) or (query_file is None) is not bool(queries):
        found = "no corpus" if corpus is None and embeddings is None else "queries given twice" if queries else "no queries"
        raise DataError(
            where="sentdist search", found=found, expected="sentences as arguments or --queries FILE; and --corpus, --embeddings or both",
            remedy="Name what to search.",
        )  # fmt: skip
    check_in_use({"--column": column, "--show": show}, needs="--corpus", is_given=corpus is not None)
    left_out = LeftOut() if embeddings is None else None  # a file of embeddings has one for each row
    columns, shown = [column] if column else [], list(dict.fromkeys(show or []))
    texts = None if corpus is None else found_texts(corpus, columns=columns, shown=shown, left_out=left_out)
    asked = queries or _all_sentences(query_file or "-")
    use = encoder_use(encoder, store)
    num_rows = look_through(texts) if texts is not None and embeddings is None else 0  # without encoding, the check would take as long

    from sentdist.inference.nearest import CorpusSearch, SameEncoder, SearchedFiles, TileReader, embed_queries, search_here
    from sentdist.run.sharing import shared_out

    mapped = None if embeddings is None else embeddings.absolute()  # for workers, which run in another folder
    searched = SearchedFiles(texts=texts, embeddings=mapped)
    with shared_out(num_rows or None, workers=workers) as runtime:
        loaded = _loaded(use, runtime)
        of_queries, of_documents = loaded.prompts.of_queries(), loaded.prompts.of_documents()
        loaded = loaded.with_prompt(of_documents.text)
        searched.check(loaded)
        print_notes(of_queries.line, of_documents.line)
        vectors = embed_queries(loaded.with_prompt(of_queries.text), asked, weights)
        reader = TileReader(encoder=SameEncoder.of(loaded), embeddings=mapped)
        result, started, devices = CorpusSearch(vectors, depth=depth), time.perf_counter(), ""
        if runtime is None:
            devices = f", {_devices_here()}"
            steps = search_here(result, searched, reader.open(loaded))
        else:
            from sentdist.run.embed import search_over_workers

            steps = search_over_workers(
                result, searched, reader, vectors.vectors, depth=depth, runtime=runtime, unknown=loaded.unknown,
                tell=lambda devices: print_notes(f"Searching {devices}."),
            )  # fmt: skip
        with sentence_progress("searching", num_rows or searched.num_rows) as advance:
            for done in steps:
                advance(done)
    print_notes_on(loaded, texts)
    if (measure := loaded.encoder.checkpoint.ranks_otherwise) and not weights:
        print_notes(f"In sentence-transformers the encoder uses {measure}; this ranking is by cosine, which ignores lengths.")
    _print_hits(asked, [result.hits(number, left_out) for number in range(len(asked))], output)
    searched_for = f"{counted(result.nearest.num_documents, 'sentence')} searched for {counted(len(asked), 'query', 'queries')}"
    print_notes(f"{searched_for} in {time.perf_counter() - started:.1f} s{devices}")


def _all_sentences(file: str) -> list[str]:
    texts = found_texts(file)
    return [sentence for batch in texts.batches(1000) for sentence in batch[texts.columns[0]]]


def _print_hits(queries: list[str], found: list[list[dict[str, Any]]], output: str) -> None:
    if output == "json":
        print_json([{"query": query, "hits": hits} for query, hits in zip(queries, found, strict=True)])
        return
    from rich.text import Text

    console = open_console()
    for query, hits in zip(queries, found, strict=True):
        others = hits[0].get("columns", {})
        texts = ["text"] if "text" in hits[0] else []
        table = empty_table(None, "rank", "score", "row")
        for name in (*texts, *others):
            table.add_column(Text(name), overflow="fold")
        for hit in hits:
            cells = [*(hit[name] for name in texts), *(hit["columns"][name] for name in others)]
            table.add_row(str(hit["rank"]), f"{hit['score']:.6f}", str(hit["row"]), *(Text(str(cell)) for cell in cells))
        console.print(Text(query, style="bold"), soft_wrap=True)
        console.print(table)


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
    from sentdist.learning.encoder.declared import Checkpoint
    from sentdist.learning.encoder.find_checkpoint import find_checkpoint

    assert out is not None, "checked above"
    use = encoder_use(encoder, store)
    folder = find_checkpoint(use.checkpoint, revision=use.revision)  # before torch is loaded, to report mistakes at once
    if not onnx:
        export_encoder(use, out, open_store(store))
        length = "; its embeddings have length 1" if Checkpoint.open(out).is_normalized else ""
        typer.echo(f'{out}: load it with SentenceTransformer("{out}"){length}')
        return
    from sentdist.inference.export import export_graph

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
