"""Find shipped recipes by name, and list the papers with reference tables. Imported by the help of all commands: keep it light."""

from __future__ import annotations

from pathlib import Path

from sentdist.errors import DataError, did_you_mean

PAPERS = ("rcl", "sts_regression", "rse", "supmpn", "auxiliary", "simcse")


def shipped_recipes() -> list[Path]:
    """Return the files of `rayjobs/recipes` of the working directory, else of the package's checkout; those in subfolders last."""
    here = Path("rayjobs/recipes")
    folder = here if here.is_dir() else Path(__file__).parents[2] / "rayjobs" / "recipes"
    return sorted(folder.rglob("*.yaml"), key=lambda path: (len(path.parts), path))


def recipe_file(path: Path) -> Path:
    """Return the path unchanged; for a plain name such as `demo`, the shipped recipe, unless a file has that name."""
    if path.is_file() or len(path.parts) != 1 or path.suffix:
        return path
    return next((file for file in shipped_recipes() if file.stem == path.name), path)


def check_paper(name: str) -> None:
    """Raise DataError for an unknown paper."""
    if name not in PAPERS:
        remedy = did_you_mean(name, PAPERS, "Correct the name.")
        raise DataError(where="paper", found=repr(name), expected=f"one of {', '.join(PAPERS)}", remedy=remedy)
