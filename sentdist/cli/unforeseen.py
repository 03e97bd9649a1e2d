"""Where the traceback of an unexpected error is kept."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from sentdist.addresses import without_secrets
from sentdist.cache import cache_folder


def kept_traceback(error: BaseException) -> Path:
    """Write the traceback, the command and the versions to a file of the user's own and return its path.

    In sentdist's cache folder; in the system's folder of temporary files where that cannot be written.
    """
    now = datetime.now(UTC)
    text = f"{now.isoformat(timespec='seconds')}\n{' '.join(sys.argv)}\nPython {sys.version.split()[0]}\n\n"
    text = without_secrets(text + "".join(traceback.format_exception(error)))
    cache = cache_folder("tracebacks")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return _written(cache, now, text)
    except OSError:
        return _written(Path(tempfile.gettempdir()), now, text)


def print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """In place of Python's own `sys.excepthook`, which shows addresses as they are."""
    sys.stderr.write(without_secrets("".join(traceback.format_exception(kind, error, trace))))


def _written(folder: Path, now: datetime, text: str) -> Path:
    """mkstemp: readable by the user alone, since a command line may hold a name or an address."""
    handle, name = tempfile.mkstemp(prefix=f"sentdist-{now:%Y%m%d-%H%M%S}-", suffix=".txt", dir=folder, text=True)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return Path(name)
