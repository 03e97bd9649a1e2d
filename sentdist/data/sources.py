"""Inspect and read a source by its name: generated, on the Hugging Face Hub, or below a data root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data import files, generated, hub, releases, retrieval
from sentdist.data.files import FileFacts
from sentdist.data.tables import check_columns
from sentdist.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

QUERY, POSITIVE, NEGATIVE = "query", "positive", "negative"
ROW_COLUMNS = ("query_id", QUERY, "document_id", "document", "relevance")  # of a table with one row per candidate


def inspect_source(
    name: str,
    *,
    split: str | None = None,
    data_root: Path | None = None,
    hub_revision: str | None = None,
    columns: Sequence[str] | None = None,
) -> FileFacts:
    """Return the facts of a source, with the number of rows of a split, without reading its sentences: fast enough for planning.

    Args:
        columns: columns that will be read, to be checked.

    Raises:
        DataError: a missing, empty or unreadable file (with similar names), an unknown split, absent columns, no answer from the hub.
    """
    facts = _facts(name, data_root, hub_revision)
    sizes = dict(facts.splits)
    part = split if name.startswith((generated.PREFIX, hub.PREFIX)) else files.part_of(list(sizes), split)
    files.check_split(name, list(sizes), part)
    check_columns(name, columns_as_rows(facts.columns), columns or ())
    return facts if part is None else replace(facts, num_rows=sizes[part])


def check_pinned(name: str, revision: str, *, data_root: Path | None) -> None:
    """Check that a source below the data root still has the content of `revision`; others cannot change.

    Raises:
        DataError: other content, which would be stored under the wrong key; or a missing source.
    """
    if not name.startswith((generated.PREFIX, hub.PREFIX)) and _facts(name, data_root, None).digest != revision:
        raise changed_since_planning(f"{name} (below {data_root})", revision)


def changed_since_planning(where: str, revision: str) -> DataError:
    """Return the error for a source whose content differs from the revision in the plan."""
    return DataError(where=where, found="another content than when the run was planned", expected=revision, remedy="Run the command again.")


def _facts(name: str, data_root: Path | None, hub_revision: str | None) -> FileFacts:
    if name.startswith(generated.PREFIX):
        return generated.facts_of(name)
    if name.startswith(hub.PREFIX):
        return hub.inspect(name, revision=hub_revision)
    if (collection := retrieval.find_collection(name, data_root)) is not None:
        return retrieval.facts_of(name, collection)
    if (release := releases.find(name, data_root)) is not None:
        return releases.facts(name, release)
    return files.file_facts(name, files.locate(name, data_root))


def has_source(name: str, folder: Path) -> bool:
    """Whether a local folder has a table of that name, with or without suffix, or documents, queries and judgements."""
    try:
        return folder.is_dir() and (bool(files.with_suffixes(folder / name)) or retrieval.find_collection(name, folder) is not None)
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
    if name.startswith(hub.PREFIX):
        return hub.read(name, split=split, columns=columns, revision=hub_revision)
    if name.startswith(generated.PREFIX):
        files.check_split(name, [part for part, _ in generated.facts_of(name).splits], split)
        return generated.read(name, split=split, columns=columns)
    if (release := releases.find(name, data_root)) is not None:
        table = releases.read(name, release)
        return files.chosen(name, table, split=files.part_of([part for part, _ in files.split_sizes(table)], split), columns=columns)
    path = files.locate(name, data_root)
    if split is not None:
        splits = [part for part, _ in files.file_facts(name, path).splits]
        split = files.part_of(splits, split)
        files.check_split(name, splits, split)
    return files.read_file(name, path, split=split, columns=columns)


def columns_as_rows(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that `checked_rows.as_rows` makes of a table with these columns."""
    return (*columns, *(column for column in ROW_COLUMNS if column not in columns and are_lists(columns)))


def are_lists(columns: Sequence[str]) -> bool:
    """Whether a table has lists of candidates, as mteb writes them."""
    return {QUERY, POSITIVE, NEGATIVE} <= set(columns) and "document" not in columns
