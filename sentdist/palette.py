"""Colours that distinguish the rows of a comparison, in figures and on pages alike."""

from __future__ import annotations

from collections.abc import Iterable

# Okabe & Ito (2008), darkest and most distant first: colour-blind readers can distinguish them.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def colors_of(labels: Iterable[str]) -> dict[str, str]:
    """A colour for each distinct label, by its place; where they run out, from the first again."""
    return {label: PALETTE[place % len(PALETTE)] for place, label in enumerate(dict.fromkeys(labels))}
