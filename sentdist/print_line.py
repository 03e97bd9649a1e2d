"""What takes the lines that people follow work by: `print`, a log, a list in a test."""

from __future__ import annotations

from collections.abc import Callable

PrintLine = Callable[[str], None]
