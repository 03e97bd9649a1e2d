"""What the shell completes: recipes, fields of --set, tasks, sweeps, papers, trainings. Nothing heavy is imported: a shell waits for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import typer

from sentdist.plan.shipped import shipped_recipes

MOST_BYTES = 1 << 20  # of a recipe that is looked at for its methods
METHOD = re.compile(r"^  ([a-z0-9][a-z0-9_-]*):", re.MULTILINE)


def recipes(incomplete: str) -> list[str]:
    """Shipped recipes, by name and by path, and files and folders as a path goes on."""
    files = shipped_recipes()
    shipped = (*(file.stem for file in files), *map(str, files))
    folder = Path(incomplete).parent if not incomplete.endswith("/") else Path(incomplete)
    beside = (f"{path}/" if path.is_dir() else str(path) for path in _entries(folder) if path.is_dir() or path.suffix in (".yaml", ".yml"))
    return _fitting(incomplete, (*beside, *shipped))


def papers(incomplete: str) -> list[str]:
    """Papers whose printed tables are known."""
    from sentdist.plan.papers import PAPERS

    return _fitting(incomplete, PAPERS)


def tasks(incomplete: str) -> list[str]:
    """Tasks and groups; of a list with commas the last."""
    from sentdist.plan.own_tasks import OWN
    from sentdist.plan.task_names import OWN_KINDS
    from sentdist.plan.tasks import TASK_GROUPS, TASKS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _fitting(last, (*TASK_GROUPS, *TASKS, *(f"{kind}=" for kind in (*OWN_KINDS, OWN))))]


def sweeps(ctx: typer.Context, incomplete: str) -> list[str]:
    """Sweeps of the store, where that is a folder."""
    return _fitting(incomplete, (path.stem for path in _entries(_store(ctx) / "sweeps") if path.suffix == ".json"))


def trainings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Keys of the store's trainings, where that is a folder."""
    return _fitting(incomplete, (path.name.rpartition("-")[2] for path in _entries(_store(ctx) / "train")))


def fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """Dotted fields of a recipe, `methods` with the names that the recipe on the line has; a field that holds others ends with a point."""
    from sentdist.plan.recipe import fields_beside

    if "=" in incomplete:
        return []
    before, _, last = incomplete.rpartition(".")
    parts = before.split(".") if before else []
    prefix = f"{before}." if before else ""
    if parts == ["methods"]:
        return [f"{prefix}{name}." for name in _fitting(last, _methods(ctx))]
    names = _fitting(last, fields_beside(parts))
    return [f"{prefix}{name}{'.' if fields_beside([*parts, name]) else '='}" for name in names]


def _methods(ctx: typer.Context) -> list[str]:
    words = (
        os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    ).split()  # what precedes an open --set is not parsed
    given = ctx.params.get("recipe") or next((word for word in words if word.endswith((".yaml", ".yml"))), None)
    path = None if given is None else Path(str(given))
    if path is None or not path.is_file() or path.stat().st_size > MOST_BYTES:
        return []
    return METHOD.findall(path.read_text(encoding="utf-8", errors="replace").partition("\nmethods:\n")[2].partition("\nruntime:")[0])


def _store(ctx: typer.Context) -> Path:
    return Path(str(ctx.params.get("store") or os.environ.get("SENTDIST_STORE") or ".sentdist/store"))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []


def _fitting(incomplete: str, names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for name in names if name.startswith(incomplete)))
