"""Where NLTK's data sets are looked for: a folder of the user's, or the places that NLTK knows itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.data.sources import mirror
from sentdist.errors import DataError
from sentdist.reading import reading

if TYPE_CHECKING:
    from nltk.data import PathPointer

# NLTK takes 1.6 s to import, hence the imports inside functions.


def nltk_folder(data_root: Path | None) -> Path | None:
    """`nltk_data` below the data root where it exists; None otherwise: then NLTK looks in NLTK_DATA and its usual places."""
    if data_root is not None:
        mirror.copy_into_mirror("nltk_data", data_root)
    folder = None if data_root is None else data_root / "nltk_data"
    return folder if folder is not None and folder.is_dir() else None


def nltk_bytes(place: PathPointer, file: str) -> bytes:
    """The content of a file of a data set. Raises DataError where it cannot be read."""
    from nltk.data import FileSystemPathPointer

    with reading(None, where=f"{place}/{file}", expected="a file of NLTK's", remedy="Fetch the data set again with nltk.downloader."):
        pointer = place.join(file)
        path = Path(pointer.path) if isinstance(pointer, FileSystemPathPointer) else None
        with reading(path, where=f"{place}/{file}", expected="a file of NLTK's"), pointer.open() as stream:
            content: bytes = stream.read()
    return content


def find_nltk(name: str, *, folder: Path | None = None) -> PathPointer:
    """The data set `name`, such as "corpora/wordnet", as a folder or inside its zip file.
    Raises DataError, saying how to get it, when it is absent."""
    import nltk.data

    if folder is not None and str(folder) not in nltk.data.path:
        nltk.data.path.insert(0, str(folder))  # NLTK opens files below these only, whoever asks
    package = name.split("/")[-1]
    for place in (name, f"{name}.zip/{package}/"):
        try:
            return nltk.data.find(place, paths=None if folder is None else [str(folder)])
        except LookupError:
            continue
    raise DataError(
        where=f"nltk {name}",
        found=f"nothing in {folder or ', '.join(nltk.data.path)}",
        expected=f"NLTK's data set {package}",
        remedy=f"Get it with `python -m nltk.downloader {package}`, or put it under nltk_data in the data root (or NLTK_DATA).",
    )
