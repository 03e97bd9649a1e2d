"""Data sets of the Hugging Face Hub: hub:OWNER/NAME[:CONFIG], pinned to a commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sentdist.data.files import FileFacts, check_split, recall_note, remember_note
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
    path, config, revision = _address(name, revision)
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
        remedy = "Download it and put it under the data root as Parquet."
        raise DataError(where=name, found="no columns or sizes in its card", expected="a data set converted to Parquet", remedy=remedy)
    facts = FileFacts(digest=str(commit), num_rows=sum(count for _, count in splits), columns=tuple(info.features), splits=splits)
    if revision == commit:  # a branch may move on
        remember_note([name, revision], facts)
    return facts


def read(name: str, *, split: str | None = None, columns: Sequence[str] | None = None, revision: str | None) -> pa.Table:
    """Return the rows of a split (None: all splits, named in a column `split`) at `revision`, from the cache or the network."""
    import pyarrow as pa

    path, config, revision = _address(name, revision)
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
    check_columns(name, joined.column_names, columns or ())
    return joined if columns is None else joined.select(list(dict.fromkeys(columns)))


def _address(name: str, revision: str | None) -> tuple[str, str | None, str]:
    """The data set, its configuration, and the revision."""
    path, _, config = name.removeprefix(PREFIX).partition(":")
    owner, slash, rest = path.partition("/")
    if not owner or not slash or not rest or "/" in rest:
        remedy = "Copy OWNER/NAME from its address on the Hub."
        raise DataError(where="source", found=f'"{name}"', expected="hub:OWNER/NAME or hub:OWNER/NAME:CONFIG", remedy=remedy)
    if not revision:
        remedy = "Copy the commit from the data set's page on the Hub (Files, History)."
        raise DataError(where=name, found="no revision", expected="the commit of the data set to read", remedy=remedy)
    return path, config or None, revision


def _unreachable(name: str, revision: str, error: Exception) -> DataError:
    if isinstance(error, ValueError) and "onfig" in str(error):  # of `datasets`
        found, remedy = first_line(error), "Name one of the configurations: hub:OWNER/NAME:CONFIG."
    else:
        trouble = hub_trouble(error, revision=revision)
        found, remedy = trouble.found, f"{trouble.remedy} Or download the data set and put it under the data root as Parquet."
    return DataError(where=name, found=found, expected=f"data set {name.removeprefix(PREFIX)} at {revision}", remedy=remedy)
