"""What a task tests: the texts whose relation or label is the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class TaskTexts:
    """What a task tests. sentences: of each item its own texts (two of a pair, a query's, a text's). pairs: (item, one, other) of the texts
    whose relation is the answer: both of a pair, a query with each relevant document; none where the answer is a label. left_out: in words,
    what the source has and the task does not score; "" for nothing. given_groups: (I,) what items belong to by the source, "" for nothing;
    or (). known_groups: (I,) which items belong together among those of a larger set that these are part of, as folds are of a collection;
    None: these are the whole set."""

    name: str
    sentences: tuple[tuple[str, ...], ...]
    pairs: tuple[tuple[int, str, str], ...]
    left_out: str = ""
    given_groups: tuple[str, ...] = ()
    known_groups: NDArray[np.int64] | None = None

    @property
    def num_items(self) -> int:
        return len(self.sentences)

    def groups(self) -> NDArray[np.int64]:
        """(I,) which items belong together: those that are linked by common texts, their own or relevant documents, directly or through
        others, or by a group that the source names: an encoder that misreads a text errs on all of them. One number is one group in all
        parts of a set."""
        if self.known_groups is not None:
            return self.known_groups
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        place: dict[str | tuple[str, ...], int] = {}
        given: list[tuple[int, str | tuple[str, ...]]] = [
            (item, (group,)) for item, group in enumerate(self.given_groups) if group
        ]  # no text is a tuple
        linked = [*given, *self.texts_by_item()]
        items = [item for item, _ in linked]
        texts = [self.num_items + place.setdefault(text, len(place)) for _, text in linked]
        size = self.num_items + len(place)
        _, group = connected_components(coo_array((np.ones(len(items)), (items, texts)), shape=(size, size)), directed=False)
        return np.asarray(group[: self.num_items], dtype=np.int64)

    @classmethod
    def of_pairs(cls, name: str, pairs: Iterable[tuple[str, str]], *, left_out: str = "", given_groups: tuple[str, ...] = ()) -> Self:
        """Items that are pairs of texts."""
        both = tuple(pairs)
        return cls(
            name=name,
            sentences=both,
            pairs=tuple((item, one, other) for item, (one, other) in enumerate(both)),
            left_out=left_out,
            given_groups=given_groups,
        )

    def texts_by_item(self) -> Iterator[tuple[int, str]]:
        """Each item with each of its texts, its own and those of its answer."""
        yield from ((item, text) for item, texts in enumerate(self.sentences) for text in texts)
        yield from ((item, text) for item, one, other in self.pairs for text in (one, other))


def shared_groups(tasks: Sequence[tuple[TaskTexts, NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
    """(I,) of each task: a number for what its items have in common with those of other tasks, -1 for nothing. Groups of several tasks have
    one number where they are linked by common texts, directly or through others.

    tasks: with the groups of their items.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if len(tasks) < 2:
        return [np.full(len(groups), -1, dtype=np.int64) for _, groups in tasks]
    first: dict[str, tuple[int, int]] = {}
    links: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for number, (texts, groups) in enumerate(tasks):
        group_of = {text: (number, int(groups[item])) for item, text in texts.texts_by_item()}
        for text, group in group_of.items():
            if (other := first.setdefault(text, group))[0] != number:
                links.append((other, group))
    place = {group: number for number, group in enumerate(dict.fromkeys(group for link in links for group in link))}
    ends = ([place[one] for one, _ in links], [place[other] for _, other in links])
    size = max(1, len(place))
    _, shared = connected_components(coo_array((np.ones(len(links)), ends), shape=(size, size)), directed=False)
    return [
        np.array([shared[place[number, group]] if (number, group) in place else -1 for group in groups.tolist()], dtype=np.int64)
        for number, (_, groups) in enumerate(tasks)
    ]
