"""The command search: find the sentences nearest to queries."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.cli.options import EncoderName, OutputFormat, RelationWeights, StoreRoot, Workers, check_in_use, print_json, weights_of
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
from sentdist.inference.opening import Prompts, encoder_use
from sentdist.learning.encoder.declared import Checkpoint
from sentdist.learning.encoder.find_checkpoint import find_checkpoint

if TYPE_CHECKING:
    from sentdist.data.texts import Texts
    from sentdist.recipe.stage import Json


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
    from sentdist.data.tables import STDIN

    weights = weights_of(relation or [])
    _check_given(queries or [], query_file, corpus, embeddings)
    check_in_use({"--column": column, "--show": show}, needs="--corpus", is_given=corpus is not None)
    left_out = LeftOut() if embeddings is None else None  # a file of embeddings has one for each row
    columns, shown = [column] if column else [], list(dict.fromkeys(show or []))
    texts = None if corpus is None else found_texts(corpus, columns=columns, shown=shown, left_out=left_out)
    for query in filter(is_file_of_sentences, queries or []):
        typer.echo(f"{query} is searched for as a sentence. For the sentences in the file: --queries {shlex.quote(query)}", err=True)
    asked = list(queries or []) or _all_sentences(found_texts(query_file or STDIN))
    use = encoder_use(encoder, store)
    prompts = Prompts.of(Checkpoint.open(find_checkpoint(use.checkpoint, revision=use.revision)), use)
    of_queries, of_documents = prompts.of_queries(), prompts.of_documents()
    use = replace(use, prompt=of_documents.text)
    num_rows = look_through(texts) if texts is not None and embeddings is None else 0  # without encoding, the check would take as long

    from sentdist.inference.nearest import CorpusSearch, SameEncoder, SearchedFiles, TileReader, embed_queries, search_here
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.run.parallel.sharing import shared_out

    mapped = None if embeddings is None else embeddings.absolute()  # for workers, which run in another folder
    searched = SearchedFiles(texts=texts, embeddings=mapped)
    with shared_out(num_rows or None, workers=workers) as runtime:
        loaded = LoadedEncoder.load(use) if workers is None else LoadedEncoder.beside_workers(use)
        searched.check(loaded)
        tell_prompts(of_queries, of_documents)
        vectors = embed_queries(loaded.with_prompt(of_queries.text), asked, weights)
        if runtime is not None:
            loaded.leave_gpu()
        reader = TileReader(encoder=SameEncoder.of(loaded), embeddings=mapped)
        found, started, devices = CorpusSearch(vectors, depth=depth), time.perf_counter(), ""
        if runtime is None:
            devices = f", {devices_here()}"
            steps = search_here(found, searched, reader.open(loaded))
        else:
            from sentdist.run.parallel.embed import search_over_workers

            steps = search_over_workers(
                found, searched, reader, vectors.vectors, depth=depth, runtime=runtime, unknown=loaded.unknown, tell=_tell_devices
            )
        with sentence_progress("searching", num_rows or searched.num_rows) as advance:
            for done in steps:
                advance(done)
    tell_of_encoder(loaded)
    if (measure := loaded.checkpoint.ranks_otherwise) and not weights:
        typer.echo(f"In sentence-transformers the encoder uses {measure}; this ranking is by cosine, which ignores lengths.", err=True)
    if texts is not None:
        tell_rows(texts)
        if left_out is not None and left_out.rows:
            typer.echo("These rows are counted from 1, those of hits from 0, as in a file of embeddings.", err=True)
    _print_hits(asked, [found.hits(number, left_out) for number in range(len(asked))], output)
    if texts is not None and texts.others and not show and output == "table":
        typer.echo(f"Other columns of the corpus: {listed(texts.others)}. --show {shlex.quote(texts.others[0])} shows one.", err=True)
    searched_for = f"{counted(found.nearest.num_documents, 'sentence')} searched for {counted(len(asked), 'query', 'queries')}"
    typer.echo(f"{searched_for} in {time.perf_counter() - started:.1f} s{devices}", err=True)


def _check_given(queries: list[str], query_file: str | None, corpus: str | None, embeddings: Path | None) -> None:
    """Raise DataError without a corpus or queries, or for two of a kind."""
    from sentdist.data.tables import STDIN

    if corpus is None and embeddings is None:
        found, expected, remedy = "no corpus", "--corpus, --embeddings or both", "Name what to search."
    elif corpus is not None and Path(corpus).suffix == ".npy":
        found, expected, remedy = corpus, "a corpus of sentences", f"For embeddings use --embeddings {shlex.quote(corpus)}."
    elif (query_file is None) == (not queries) or query_file == corpus == STDIN:
        found = "no queries" if not (queries or query_file) else "queries given twice, or two files on stdin"
        expected, remedy = "sentences as arguments, or --queries FILE; one of the files may be standard input", "Use one of them."
    else:
        return
    raise DataError(where="sentdist search", found=found, expected=expected, remedy=remedy)


def _tell_devices(devices: str) -> None:
    typer.echo(f"Searching {devices}.", err=True)


def _all_sentences(texts: Texts) -> list[str]:
    return [sentence for batch in texts.batches(1000) for sentence in batch[texts.columns[0]]]


def _print_hits(queries: list[str], found: list[list[dict[str, Json]]], output: str) -> None:
    if output == "json":
        print_json([{"query": query, "hits": hits} for query, hits in zip(queries, found, strict=True)])
        return
    from rich.markup import escape

    console = open_console()
    for query, hits in zip(queries, found, strict=True):
        texts = ["text"] if "text" in hits[0] else []
        table = empty_table(None, "rank", "score", "row", *texts, *map(escape, _columns(hits[0])))
        for column in table.columns[3:]:
            column.justify = "left"
        for hit in hits:
            cells = [*(hit[name] for name in texts), *_columns(hit).values()]
            table.add_row(str(hit["rank"]), f"{hit['score']:.6f}", str(hit["row"]), *(escape(str(cell)) for cell in cells))
        console.print(query, markup=False, highlight=False, style="bold", soft_wrap=True)
        console.print(table)


def _columns(hit: dict[str, Json]) -> dict[str, Json]:
    """The other columns that are shown."""
    columns = hit.get("columns")
    return columns if isinstance(columns, dict) else {}
