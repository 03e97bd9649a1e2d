"""What a comparison needs of an encoder that was scored, wherever that was done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One encoder. scores: task -> main score × 100, None where it is not defined. items: task -> its files of items (several: parts of
    equal weight, whose mean is the score)."""

    scores: Mapping[str, float | None]
    items: Mapping[str, tuple[Path, ...]]
