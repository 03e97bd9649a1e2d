"""Where the recipes lie that ship, which file a name stands for, and which was meant by a path that leads to none."""

from __future__ import annotations

from pathlib import Path

from sentdist.errors import DataError, did_you_mean, near_file


def recipe_folder() -> Path:
    """Where the shipped recipes lie: in this folder's checkout, else in that of the package."""
    here = Path("rayjobs/recipes")
    return here if here.is_dir() else Path(__file__).parents[2] / "rayjobs" / "recipes"


def shipped_recipes() -> list[Path]:
    """Files of the recipes that ship, those of no folder of their own first."""
    return sorted(recipe_folder().rglob("*.yaml"), key=lambda path: (len(path.parts), path))


def recipe_file(path: Path) -> Path:
    """A path as it is; for a name without folder and suffix, such as `demo`, the shipped recipe, unless a file here has it."""
    if path.is_file() or len(path.parts) != 1 or path.suffix:
        return path
    return next((file for file in shipped_recipes() if file.stem == path.name), path)


def meant_recipe(path: Path) -> Path | None:
    """The shipped recipe of that very name; else one beside the path, or a shipped one, that is called nearly so; None: none is."""
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
    """Refuse a name that no paper has: DataError."""
    if name not in PAPERS:
        remedy = did_you_mean(name, PAPERS, "Correct the name.")
        raise DataError(where="paper", found=repr(name), expected=f"one of {', '.join(PAPERS)}", remedy=remedy)
