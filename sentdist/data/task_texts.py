"""What a task tests: the texts whose relation or label is the answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, kw_only=True)
class TaskTexts:
    """What a task tests. sentences: of each item its own texts (two of a pair, a query's, a text's). pairs: (item, one, other) of the texts
    whose relation is the answer: both of a pair, a query with each relevant document; none where the answer is a label."""

    name: str
    sentences: tuple[tuple[str, ...], ...]
    pairs: tuple[tuple[int, str, str], ...]

    @property
    def num_items(self) -> int:
        return len(self.sentences)

    @classmethod
    def of_pairs(cls, name: str, pairs: Iterable[tuple[str, str]]) -> Self:
        """Items that are pairs of texts."""
        both = tuple(pairs)
        return cls(name=name, sentences=both, pairs=tuple((item, one, other) for item, (one, other) in enumerate(both)))
