"""Find shipped recipes by name, suggest the one that was probably meant, and list the papers with reference tables."""

from __future__ import annotations

from pathlib import Path

from sentdist.errors import DataError, did_you_mean, near_file


def recipe_folder() -> Path:
    """Return the folder of the shipped recipes: `rayjobs/recipes` of the working directory, else of the package's checkout."""
    here = Path("rayjobs/recipes")
    return here if here.is_dir() else Path(__file__).parents[2] / "rayjobs" / "recipes"


def shipped_recipes() -> list[Path]:
    """Return the files of the shipped recipes, those outside subfolders first."""
    return sorted(recipe_folder().rglob("*.yaml"), key=lambda path: (len(path.parts), path))


def recipe_file(path: Path) -> Path:
    """Return the path unchanged; for a plain name such as `demo`, the shipped recipe, unless a file has that name."""
    if path.is_file() or len(path.parts) != 1 or path.suffix:
        return path
    return next((file for file in shipped_recipes() if file.stem == path.name), path)


def meant_recipe(path: Path) -> Path | None:
    """Return the recipe that a wrong path probably means: a shipped one of that name, else a similar name nearby or shipped; or None."""
    folder = path.parent if path.parent.is_dir() else Path()
    shipped = shipped_recipes()
    same = [file for file in shipped if file.stem == path.stem]
    for files in (same, sorted(folder.glob("*.yaml")), shipped):
        by_name = {file.name: file for file in reversed(files)}
        if closest := near_file(path.name, by_name):
            return by_name[closest]
    return None


PAPERS = ("rcl", "sts_regression", "rse", "supmpn", "auxiliary", "simcse")


def check_paper(name: str) -> None:
    """Raise DataError for an unknown paper."""
    if name not in PAPERS:
        remedy = did_you_mean(name, PAPERS, "Correct the name.")
        raise DataError(where="paper", found=repr(name), expected=f"one of {', '.join(PAPERS)}", remedy=remedy)
