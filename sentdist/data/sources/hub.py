"""Inspect and read a source by its name: generated, on the Hugging Face Hub (hub:OWNER/NAME[:CONFIG], pinned to a commit) or a file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data import generated
from sentdist.data.sources import files, releases, retrieval_files
from sentdist.data.sources.file_facts import FileFacts, changed_since_planning, known_digest, recall_note, remember_note
from sentdist.data.sources.files import check_split
from sentdist.data.sources.retrieval_files import columns_as_rows
from sentdist.data.tables import check_columns, with_large_strings
from sentdist.errors import DataError, first_line, hub_trouble

if TYPE_CHECKING:
    import pyarrow as pa


PREFIX = "hub:"

# `datasets` takes a second to import: hence the imports inside functions.


def inspect(name: str, *, revision: str | None) -> FileFacts:
    """Return the commit of `revision` (a commit, branch or tag), with size, columns and splits.

    The facts of a commit never change: they are cached, so that planning needs no network again.

    Raises:
        DataError: no revision, no network, or an unknown data set, configuration or revision.
    """
    path, config = _address(name)
    revision = _checked(name, revision)
    if (known := recall_note([name, revision])) is not None:
        return known
    import datasets
    import huggingface_hub

    try:
        commit = huggingface_hub.HfApi(endpoint=datasets.config.HF_ENDPOINT).dataset_info(path, revision=revision, timeout=20).sha
        info = datasets.load_dataset_builder(path, config, revision=commit).info
    except Exception as error:  # each client library raises different errors
        raise _unreachable(name, revision, error) from error
    splits = tuple((str(split), int(part.num_examples)) for split, part in (info.splits or {}).items())
    if not info.features or not splits:
        found = "no columns or sizes in the data set's card"
        remedy = "Download it and put it under the data root as Parquet."
        raise DataError(where=name, found=found, expected="a data set that the Hub has converted to Parquet", remedy=remedy)
    facts = FileFacts(digest=str(commit), num_rows=sum(count for _, count in splits), columns=tuple(info.features), splits=splits)
    if revision == commit:  # a branch may move on
        remember_note([name, revision], facts)
    return facts


def read(name: str, *, split: str | None, columns: Sequence[str] | None, revision: str | None) -> pa.Table:
    """Return the rows of a split (None: all splits, named in a column `split`) at `revision`, from the cache or the network."""
    import pyarrow as pa

    path, config = _address(name)
    revision = _checked(name, revision)
    import datasets

    try:
        found = datasets.load_dataset(path, config, revision=revision)
    except Exception as error:  # as above
        raise _unreachable(name, revision, error) from error
    check_split(name, tuple(str(part) for part in found), split)
    parts = []
    for part, rows in found.items():
        if split in (None, part):
            table = rows.with_format("arrow")[:]
            if split is None and "split" not in table.column_names:
                table = table.append_column("split", pa.array([str(part)] * table.num_rows, pa.large_string()))
            parts.append(with_large_strings(table.replace_schema_metadata(None)))
    joined = pa.concat_tables(parts)
    if columns is not None:
        check_columns(name, joined.column_names, columns)
        joined = joined.select(list(dict.fromkeys(columns)))
    return joined


def _address(name: str) -> tuple[str, str | None]:
    path, _, config = name.removeprefix(PREFIX).partition(":")
    owner, slash, rest = path.partition("/")
    if not owner or not slash or not rest or "/" in rest:
        remedy = "Copy OWNER/NAME from its address on the Hub."
        raise DataError(where="source", found=f'"{name}"', expected="hub:OWNER/NAME or hub:OWNER/NAME:CONFIG", remedy=remedy)
    return path, config or None


def _checked(name: str, revision: str | None) -> str:
    if not revision:
        remedy = "Copy the commit from the data set's page on the Hub (Files, History)."
        raise DataError(where=name, found="no revision", expected="the commit of the data set to read", remedy=remedy)
    return revision


def _unreachable(name: str, revision: str | None, error: Exception) -> DataError:
    if isinstance(error, ValueError) and "onfig" in str(error):  # of `datasets`
        found, remedy = first_line(error), "Name one of the configurations: hub:OWNER/NAME:CONFIG."
    else:
        trouble = hub_trouble(error, revision=revision)
        found, remedy = trouble.found, trouble.remedy
        if not trouble.has_answered:
            remedy = f"{remedy} Or download the data set elsewhere and put it under the data root as Parquet."
    return DataError(where=name, found=found, expected=f"data set {name.removeprefix(PREFIX)} at {revision}", remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """Facts of a source for planning.

    Args:
        revision: pins the content: "sha256:…" of local files, the commit of a hub data set, the generator's version.
        num_rows: rows of the requested split, or of all splits; judgements for a retrieval source.
        columns: names of the columns; of the documents for a retrieval source.
        splits: names of the splits, () without splits.
    """

    revision: str
    num_rows: int
    columns: tuple[str, ...]
    splits: tuple[str, ...] = ()


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
    """Return the facts of a source without reading its sentences: fast enough for planning.

    Args:
        columns: columns that will be read, to be checked.
        may_name_columns: whether the user can choose their names.
        judged: whether the source should have documents, queries and judgements.

    Raises:
        DataError: a missing, empty or unreadable file (with similar names), an unknown split, absent columns, no answer from the hub.
    """
    if name.startswith(generated.PREFIX):
        source = generated.source_of(name)
        facts = _facts(name, generated.REVISION, source.num_rows, source.columns, source.splits, split)
    elif name.startswith(PREFIX):
        remote = inspect(name, revision=hub_revision)
        facts = _facts(name, remote.digest, remote.num_rows, remote.columns, dict(remote.splits), split)
    elif (parts := retrieval_files.find(name, data_root)) is not None:
        facts = _retrieval_facts(name, parts, split)
    elif judged and data_root is not None and name not in files.RELEASES and not files.has_table(data_root, name):
        raise retrieval_files.missing_parts(name, data_root, retrieval_files.known_sources(data_root))
    else:
        release = releases.find(name, data_root)
        file = releases.facts(name, release) if release else files.file_facts(name, files.locate(name, data_root))
        sizes = dict(file.splits)
        facts = _facts(name, file.digest, file.num_rows, file.columns, sizes, files.part_of(tuple(sizes), split))
    if columns is not None:
        found = facts.columns if may_name_columns else columns_as_rows(facts.columns)
        check_columns(name, found, columns, remedy="" if may_name_columns else "Rename columns in the file")
    return facts


def has_source(name: str, folder: Path) -> bool:
    """Whether a local folder has a table of that name, with or without suffix, or documents, queries and judgements."""
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
    """Return the rows of a source (hub data sets at `hub_revision`) or one split, text as large_string; DataError as `inspect_source`."""
    if name.startswith(generated.PREFIX):
        return generated.read(name, split=split, columns=columns)
    if name.startswith(PREFIX):
        return read(name, split=split, columns=columns, revision=hub_revision)
    if (release := releases.find(name, data_root)) is not None:
        table = releases.read(name, release)
        return files.chosen(name, table, split=files.part_of([one for one in table.column_names if one == "split"], split), columns=columns)
    path = files.locate(name, data_root)
    if split is not None:
        splits = [known for known, _ in files.file_facts(name, path).splits]
        split = files.part_of(splits, split)
        files.check_split(name, splits, split)
    return files.read_file(name, path, split=split, columns=columns)


def check_pinned(name: str, revision: str, *, data_root: Path | None) -> None:
    """Check that a source below the data root still has the content of `revision`; others cannot change.

    Raises:
        DataError: other content, which would be stored under the wrong key; or a missing source.
    """
    if name.startswith((generated.PREFIX, PREFIX)):
        return
    if (parts := retrieval_files.find(name, data_root)) is not None:
        where, found = parts.documents, _joined_digest(parts)
    elif (release := releases.find(name, data_root)) is not None:
        where, found = release, releases.content(release)
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
    facts = {path: files.file_facts(name, path) for path in parts.paths}
    retrieval_files.check_part_columns(name, parts, {path: found.columns for path, found in facts.items()})
    judged = [(part, facts[path]) for part, path in parts.judgements]
    sizes = {part: found.num_rows for part, found in judged if part} or dict(judged[0][1].splits)
    num_rows, columns = sum(found.num_rows for _, found in judged), facts[parts.documents].columns
    return _facts(name, _joined_digest(parts), num_rows, columns, sizes, files.part_of(tuple(sizes), split))


def _facts(name: str, revision: str, num_rows: int, columns: tuple[str, ...], splits: dict[str, int], split: str | None) -> SourceFacts:
    files.check_split(name, tuple(splits), split)
    size = num_rows if split is None else splits[split]
    return SourceFacts(revision=revision, num_rows=size, columns=columns, splits=tuple(splits))
