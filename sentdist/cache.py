"""Where this user's cache lies: what may be removed at any time, and costs time then."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """The folder of that name, made by nobody yet: below SENTDIST_CACHE, or else below `sentdist` in the user's cache folder."""
    own = os.environ.get("SENTDIST_CACHE")
    if own:
        return Path(own) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sentdist" / name
