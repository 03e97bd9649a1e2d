"""A folder that save_to_disk of `datasets` has written: which files hold its rows, and of which splits these are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sentdist.errors import DataError
from sentdist.reading import WRITE_AGAIN, read_json_object

SPLITS, STATE = "dataset_dict.json", "state.json"  # of a DatasetDict; of a Dataset, which each split is
EXPECTED = "a data set as save_to_disk of `datasets` writes it"


def is_saved(folder: Path) -> bool:
    """Whether save_to_disk has written a folder."""
    return (folder / SPLITS).is_file() or (folder / STATE).is_file()


def saved_files(folder: Path) -> list[tuple[Path, str]]:
    """The files of such a folder in their order, each with the name of its split; "" for a data set without splits.

    Raises:
        DataError: a description that says something else than `datasets` writes, or a file that is not there.
    """
    if not (folder / SPLITS).is_file():
        return [(file, "") for file in _files_of(folder)]
    splits = read_json_object(folder / SPLITS, expected=EXPECTED, remedy=WRITE_AGAIN).get("splits")
    if not isinstance(splits, list) or not all(isinstance(split, str) and _is_plain(split) for split in splits):
        raise _broken(folder / SPLITS, "no names of splits")
    return [(file, split) for split in splits for file in _files_of(folder / split)]


def _files_of(folder: Path) -> Iterator[Path]:
    """The files of a Dataset. Others may lie beside them, as `map` keeps what it has made."""
    state = read_json_object(folder / STATE, expected=EXPECTED, remedy=WRITE_AGAIN)
    listed = state.get("_data_files")
    names = [entry.get("filename") for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    if not names or not all(isinstance(name, str) and _is_plain(name) for name in names):
        raise _broken(folder / STATE, "no names of files")
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise _broken(folder / STATE, "rows that are chosen by an index", "Save it again with a newer `datasets`.")
    for name in map(str, names):
        if not (folder / name).is_file():
            raise _broken(folder / name, "no such file")
        yield folder / name


def _is_plain(name: str) -> bool:
    """Whether a name is that of something in the folder itself."""
    return bool(name) and name == Path(name).name and name != ".."


def _broken(path: Path, found: str, remedy: str = WRITE_AGAIN) -> DataError:
    return DataError(where=str(path), found=found, expected=EXPECTED, remedy=remedy)
