"""A name, and the pinned table it stands for: a file under the data root, a data set of the Hugging Face Hub, or a generated corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.generated import corpora as generated
from sentdist.data.sources import files, hub, released, retrieval_files
from sentdist.data.sources.candidate_lists import columns_as_rows
from sentdist.data.sources.column_names import check_columns
from sentdist.data.sources.file_facts import changed_since_planning, known_digest
from sentdist.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """What planning needs to know of a source.

    revision: pins the content: "sha256:…" of local files, the commit of a hub data set, the generator's version.
    num_rows: rows of the split asked for, of all splits when none was; judgements for a retrieval source.
    columns: names of the columns, of the documents for a retrieval source. splits: names of the splits, empty when the source has none.
    note: of one file, how it is written where that is not as usual.
    """

    revision: str
    num_rows: int
    columns: tuple[str, ...]
    splits: tuple[str, ...] = ()
    note: str = ""


def inspect_source(
    name: str,
    *,
    split: str | None = None,
    data_root: Path | None = None,
    hub_revision: str | None = None,
    columns: Sequence[str] | None = None,
    may_name_columns: bool = True,
    judged: bool = False,
) -> SourceFacts:
    """Say what `name` is without reading its sentences: fast enough for planning, and where a user's mistakes surface.

    `columns`: those that will be read; their absence is found here. may_name_columns: whether a person can say which.
    judged: whether documents, queries and judgements are meant: an error says what to put there.
    Raises DataError for a missing, empty or unreadable file (with near names), an unknown split, absent columns, a hub out of reach.
    """
    if name.startswith(generated.PREFIX):
        sizes = generated.split_sizes(name)
        facts = _facts(name, generated.REVISION, generated.num_rows(name), generated.columns_of(name), sizes, split)
    elif name.startswith(hub.PREFIX):
        remote = hub.inspect(name, revision=hub_revision)
        facts = _facts(name, remote.digest, remote.num_rows, remote.columns, dict(remote.splits), split)
    elif (parts := retrieval_files.find(name, data_root)) is not None:
        facts = _retrieval_facts(name, parts, split)
    elif judged and data_root is not None and name not in files.RELEASES and not files.has_table(data_root, name):
        raise retrieval_files.missing_parts(name, data_root, retrieval_files.known_sources(data_root))
    else:
        release = released.find(name, data_root)
        file = released.facts(name, release) if release else files.file_facts(name, files.locate(name, data_root))
        sizes = dict(file.splits)
        facts = _facts(name, file.digest, file.num_rows, file.columns, sizes, files.part_of(tuple(sizes), split), note=file.note)
    if columns is not None:
        found = facts.columns if may_name_columns else columns_as_rows(facts.columns)
        check_columns(name, found, columns, may_name=may_name_columns)
    return facts


def has_source(name: str, folder: Path) -> bool:
    """Whether a folder of this machine has a table of that name, with or without its suffix, or documents, queries and judgements."""
    try:
        return folder.is_dir() and (
            (folder / name).is_file() or files.has_table(folder, name) or retrieval_files.find(name, folder) is not None
        )
    except DataError:  # some of the three tables are there
        return True


def read_source(
    name: str,
    *,
    split: str | None = None,
    data_root: Path | None = None,
    columns: Sequence[str] | None = None,
    hub_revision: str | None = None,
) -> pa.Table:
    """Return the rows of a source (of one split, if named) with text columns as large_string. Raises DataError as `inspect_source` does.

    hub_revision: the commit that is read of a source on the hub; what pins any other source says nothing about where it lies.
    """
    if name.startswith(generated.PREFIX):
        return generated.read(name, split=split, columns=columns)
    if name.startswith(hub.PREFIX):
        return hub.read(name, split=split, columns=columns, revision=hub_revision)
    if (release := released.find(name, data_root)) is not None:
        table = released.read(name, release)
        return files.chosen(name, table, split=files.part_of([one for one in table.column_names if one == "split"], split), columns=columns)
    path = files.locate(name, data_root)
    if split is not None:
        splits = [known for known, _ in files.file_facts(name, path).splits]
        split = files.part_of(splits, split)
        files.check_split(name, splits, split)
    return files.read_file(name, path, split=split, columns=columns)


def check_pinned(name: str, revision: str, *, data_root: Path | None) -> None:
    """Look whether a source below the data root still has the content that a plan names by `revision`; others cannot change.

    Raises:
        DataError: it has another, which would be kept under the key of that one; or it is not there.
    """
    if name.startswith((generated.PREFIX, hub.PREFIX)):
        return
    if (parts := retrieval_files.find(name, data_root)) is not None:
        where, found = parts.documents, _joined_digest(parts)
    elif (release := released.find(name, data_root)) is not None:
        where, found = release, released.content(release)
    else:
        where = files.locate(name, data_root)
        found = known_digest(where)
    if found != revision:
        raise changed_since_planning(f"{name} ({where})", revision)


def _joined_digest(parts: retrieval_files.RetrievalFiles) -> str:
    return "sha256:" + hashlib.sha256("".join(map(known_digest, parts.paths)).encode()).hexdigest()[:16]


def _retrieval_facts(name: str, parts: retrieval_files.RetrievalFiles, split: str | None) -> SourceFacts:
    if parts.release is not None:
        tables = parts.release.tables(name)
        counts = {str(entry["values"]): int(entry["counts"]) for entry in tables.judgements["split"].value_counts().to_pylist()}
        return _facts(name, _joined_digest(parts), tables.judgements.num_rows, tuple(tables.documents.column_names), counts, split)
    for part, path in parts.judgements:
        retrieval_files.refuse_headless(name, path, is_of_beir=part is not None)
    facts = {path: files.file_facts(name, path) for path in parts.paths}
    retrieval_files.check_part_columns(name, parts, {path: found.columns for path, found in facts.items()})
    judged = [(part, facts[path]) for part, path in parts.judgements]
    sizes = {part: found.num_rows for part, found in judged if part} or dict(judged[0][1].splits)
    num_rows, columns = sum(found.num_rows for _, found in judged), facts[parts.documents].columns
    return _facts(name, _joined_digest(parts), num_rows, columns, sizes, files.part_of(tuple(sizes), split))


def _facts(
    name: str, revision: str, num_rows: int, columns: tuple[str, ...], splits: dict[str, int], split: str | None, *, note: str = ""
) -> SourceFacts:
    files.check_split(name, tuple(splits), split)
    size = num_rows if split is None else splits[split]
    return SourceFacts(revision=revision, num_rows=size, columns=columns, splits=tuple(splits), note=note)
