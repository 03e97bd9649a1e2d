"""Measurements against named peers, and the pages and figures that are made from them."""

from __future__ import annotations

from pathlib import Path


def out_folder(name: str) -> Path:
    """The type of `--out`: a folder that is made before anything is measured, so that no figures are lost for want of one."""
    folder = Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def out_file(name: str) -> Path:
    """The type of `--out` where it names a file: its folder is made before anything is measured."""
    return out_folder(str(Path(name).parent)) / Path(name).name
