"""The command search: find the sentences nearest to queries."""

from __future__ import annotations

import json
import shlex
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
    OwnPooling,
    QueryPrompt,
    RelationWeights,
    StoreRoot,
    TextColumn,
    check_choice,
    check_in_use,
    given_names,
    named_gpus,
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
from sentdist.errors import DataError, counted, listed
from sentdist.files import is_file_of_sentences
from sentdist.inference.opening import encoder_use
from sentdist.learning.encoder.find_checkpoint import find_checkpoint

MANY_QUERIES = 1_000  # some seconds on a CPU

if TYPE_CHECKING:
    from sentdist.data.texts import Texts
    from sentdist.plan.stage import Json


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
    column: TextColumn = None,
    query_column: Annotated[str | None, typer.Option("--query-column", help="Column of queries in a table.")] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="Column of ids in the corpus, to show.")] = None,
    show: Annotated[
        list[str] | None, typer.Option("--show", help="Another column of the corpus to show with each hit; may be repeated.")
    ] = None,
    query_prompt: QueryPrompt = None,
    document_prompt: Annotated[
        str | None,
        typer.Option(
            "--document-prompt",
            help="The same for the corpus; --embeddings must have been made with it.  [default: its prompt named document, if it has one]",
            show_default=False,
        ),
    ] = None,
    depth: Annotated[int, typer.Option("-k", "--top", min=1, help="Hits for each query.")] = 10,
    output: Annotated[str, typer.Option("--format", help="table, or jsonl: a line with all hits for each query.")] = "table",
    relation: RelationWeights = None,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Search on this many workers of the Ray cluster.")] = None,
    gpus_per_worker: GpusPerWorker = None,
    gpu_type: GpuType = None,
    precision: EncodingPrecision = "fp32",
    max_length: MaxLength = None,
    pooling: OwnPooling = None,
    revision: EncoderRevision = None,
    store: StoreRoot = None,
) -> None:
    """Find the sentences nearest to queries.

    Exact search by cosine or by relations, in a corpus of any size.
    """
    from sentdist.data.cells import LeftOut
    from sentdist.data.tables import STDIN
    from sentdist.inference.opening import Prompts

    weights = weights_of(relation or [])
    check_choice("--format", output, ("table", "jsonl"))
    check_in_use({"--gpus-per-worker": gpus_per_worker, "--gpu-type": gpu_type}, needs="--workers", is_given=workers is not None)
    check_in_use({"--query-column": query_column}, needs="--queries", is_given=query_file is not None)
    gpus = named_gpus(gpus_per_worker, gpu_type)
    _check_corpus(corpus, embeddings, names_columns=bool(column or id_column or show))
    _check_queries(queries, query_file, corpus)
    left_out = LeftOut() if embeddings is None else None  # a file of embeddings has one for each row
    texts = (
        None
        if corpus is None
        else found_texts(corpus, columns=given_names(column), id_column=id_column, shown=list(dict.fromkeys(show or [])), left_out=left_out)
    )
    _tell_of_files(queries or [])
    asked = list(queries or []) or _all_sentences(found_texts(query_file or STDIN, columns=given_names(query_column)))
    use = encoder_use(encoder, store, revision=revision, pooling=pooling, max_length=max_length, precision=precision)
    prompts = Prompts.of(find_checkpoint(use.checkpoint, revision=use.revision), encoder=f"encoder {use.checkpoint}")
    of_queries, of_documents = prompts.of_queries(query_prompt), prompts.of_documents(document_prompt)
    use = replace(use, prompt=of_documents.text)
    num_rows = look_through(texts) if texts is not None and embeddings is None else 0  # without encoding, the check would take as long

    from sentdist.execution.parallel.sharing import shared_out
    from sentdist.inference.nearest import CorpusSearch, SameEncoder, SearchedFiles, TileReader, embed_queries, search_here
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.learning.encoder.declared import ranks_otherwise

    mapped = None if embeddings is None else embeddings.absolute()  # for workers, which run in another folder
    searched = SearchedFiles(texts=texts, embeddings=mapped)
    with shared_out(num_rows or None, workers=workers, gpus=gpus) as runtime:
        loaded = LoadedEncoder.load(use) if workers is None else LoadedEncoder.beside_workers(use)
        searched.check(loaded)
        tell_prompts(of_queries, of_documents)
        if workers is not None:
            _tell_of_queries(len(asked))
        vectors = embed_queries(loaded.with_prompt(of_queries.text), asked, weights)
        if runtime is not None:
            loaded.leave_gpu()
        reader = TileReader(encoder=SameEncoder.of(loaded), embeddings=mapped)
        found, started, devices = CorpusSearch(vectors, depth=depth), time.perf_counter(), ""
        if runtime is None:
            devices = f", {devices_here()}"
            steps = search_here(found, searched, reader.open(loaded))
        else:
            from sentdist.execution.parallel.embed import search_over_workers

            steps = search_over_workers(
                found, searched, reader, vectors.vectors, depth=depth, runtime=runtime, unknown=loaded.unknown, tell=_tell_devices
            )
        with sentence_progress("searching", num_rows or searched.num_rows) as advance:
            for done in steps:
                advance(done)
    tell_of_encoder(loaded)
    if (measure := ranks_otherwise(loaded.folder)) and not weights:
        typer.echo(f"In sentence-transformers the encoder uses {measure}; this ranking is by cosine, which ignores lengths.", err=True)
    if texts is not None:
        tell_rows(texts)
        if left_out is not None and left_out.rows:
            typer.echo("These rows are counted from 1, those of hits from 0, as in a file of embeddings.", err=True)
    _print_hits(asked, [found.hits(number, left_out) for number in range(len(asked))], output)
    if texts is not None and texts.others and not (id_column or show) and output == "table":
        typer.echo(f"Other columns of the corpus: {listed(texts.others)}. --show {shlex.quote(texts.others[0])} shows one.", err=True)
    _tell_size(found.nearest.num_documents, len(asked), depth=depth, how=f"in {time.perf_counter() - started:.1f} s{devices}")


def _check_corpus(corpus: str | None, embeddings: Path | None, *, names_columns: bool) -> None:
    """Raise DataError without a corpus, or for columns without a file."""
    if corpus is None and embeddings is None:
        raise DataError(
            where="sentdist search", found="no corpus", expected="--corpus, --embeddings or both", remedy="Name what to search."
        )
    if corpus is not None and Path(corpus).suffix == ".npy":
        raise DataError(
            where="--corpus", found=corpus, expected="sentences", remedy=f"For embeddings use --embeddings {shlex.quote(corpus)}."
        )
    if corpus is None and names_columns:
        raise DataError(where="--column, --id, --show", found="no --corpus", expected="a file with columns", remedy="Name the corpus.")


def _tell_of_files(queries: list[str]) -> None:
    """Print a note if a query is the name of a file of sentences."""
    for query in queries:
        if is_file_of_sentences(query):
            typer.echo(f"{query} is searched for as a sentence. For the sentences in the file: --queries {shlex.quote(query)}", err=True)


def _check_queries(queries: list[str] | None, query_file: str | None, corpus: str | None) -> None:
    """Raise DataError without queries, for queries given twice, or for two files from standard input."""
    from sentdist.data.tables import STDIN

    if (query_file is None) == (not queries) or (query_file == corpus == STDIN):
        raise DataError(
            where="sentdist search", found="no queries" if not (queries or query_file) else "queries given twice, or two files on stdin",
            expected="sentences as arguments, or --queries FILE; one of the files may be standard input", remedy="Use one of them.",
        )  # fmt: skip


def _tell_devices(devices: str) -> None:
    typer.echo(f"Searching {devices}.", err=True)


def _tell_of_queries(num_queries: int) -> None:
    if num_queries >= MANY_QUERIES:
        typer.echo(f"{num_queries:,} queries are embedded first, on this machine's CPU; without --workers its GPU is used.", err=True)


def _tell_size(num_sentences: int, num_queries: int, *, depth: int, how: str) -> None:
    sentences = counted(num_sentences, "sentence")
    typer.echo(f"{sentences} searched for {counted(num_queries, 'query', 'queries')} {how}", err=True)
    if num_sentences < depth:
        typer.echo(f"The corpus has {sentences}, fewer than {depth}: all of them are shown.", err=True)


def _all_sentences(texts: Texts) -> list[str]:
    return [sentence for batch in texts.batches(1000) for sentence in batch[texts.columns[0]]]


def _print_hits(queries: list[str], found: list[list[dict[str, Json]]], output: str) -> None:
    if output == "jsonl":
        for query, hits in zip(queries, found, strict=True):
            typer.echo(json.dumps({"query": query, "hits": hits}, ensure_ascii=False))
        return
    from rich.markup import escape

    console = open_console()
    for query, hits in zip(queries, found, strict=True):
        known = [name for name in ("id", "text") if name in hits[0]]
        columns = _columns(hits[0])
        table = empty_table(None, "rank", "score", "row", *known, *(escape(name) for name in columns))
        for column in table.columns[3:]:
            column.justify = "left"
        for hit in hits:
            cells = [*(hit[name] for name in known), *_columns(hit).values()]
            table.add_row(str(hit["rank"]), f"{hit['score']:.6f}", str(hit["row"]), *(escape(str(cell)) for cell in cells))
        console.print(query, markup=False, highlight=False, style="bold", soft_wrap=True)
        console.print(table)


def _columns(hit: dict[str, Json]) -> dict[str, Json]:
    """The columns shown beside id and text."""
    columns = hit.get("columns")
    return columns if isinstance(columns, dict) else {}
