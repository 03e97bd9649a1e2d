"""Data sets of the Hugging Face Hub, named hub:OWNER/NAME or hub:OWNER/NAME:CONFIG and pinned to a commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sentdist.data.sources.column_names import check_columns
from sentdist.data.sources.file_facts import FileFacts, recall_note, remember_note
from sentdist.data.sources.files import check_split, with_large_strings
from sentdist.errors import DataError, first_line
from sentdist.hub_errors import hub_trouble

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "hub:"

# `datasets` takes a second to import, so it is imported by the functions that need it.


def inspect(name: str, *, revision: str | None) -> FileFacts:
    """Return the commit that `revision` (a commit, branch or tag) stands for, with the size, columns and splits that the Hub tells of it.

    What belongs to a commit never changes: it is asked once and remembered, so that planning then needs no network.
    Raises DataError without a revision, without a network, and for a data set, configuration or revision that the Hub does not know.
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
    except Exception as error:  # every client library underneath has errors of its own
        raise _unreachable(name, revision, error) from error
    splits = tuple((str(split), int(part.num_examples)) for split, part in (info.splits or {}).items())
    if not info.features or not splits:
        raise DataError(
            where=name,
            found="no columns or sizes in the data set's card",
            expected="a data set that the Hub has converted to Parquet",
            remedy="Download it and put it under the data root as Parquet.",
        )
    facts = FileFacts(digest=str(commit), num_rows=sum(count for _, count in splits), columns=tuple(info.features), splits=splits)
    if revision == commit:  # a branch may move on
        remember_note([name, revision], facts)
    return facts


def read(name: str, *, split: str | None, columns: Sequence[str] | None, revision: str | None) -> pa.Table:
    """Return the rows of a split (None: of all splits, with their name in a column `split`) at `revision`,
    downloading what is not cached."""
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
        raise DataError(
            where="source",
            found=f'"{name}"',
            expected="hub:OWNER/NAME or hub:OWNER/NAME:CONFIG",
            remedy="Write it as the Hub's address bar has it.",
        )
    return path, config or None


def _checked(name: str, revision: str | None) -> str:
    if not revision:
        raise DataError(
            where=name,
            found="no revision",
            expected="the commit of the data set to read",
            remedy="Copy the commit from the data set's page on the Hub (Files, History).",
        )
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
