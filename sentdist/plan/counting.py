"""Counts in words."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """'1 query', '2,000 queries': `plural` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
