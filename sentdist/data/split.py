"""Split the rows of a user table into train, dev and test; rows linked by common texts stay in one split."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from sentdist.data.leaks import KnownTexts, fold_disguised, linked_groups
from sentdist.data.sampler import digest_u64
from sentdist.data.tables import SPLITS
from sentdist.errors import DataError, brief, counted

SIDES = ("train", "dev", "test")
TRAIN, DEV, TEST = range(3)
OWN_NAMES = {word: SIDES.index(split) for word, split in SPLITS.items()}
LEAST = 5  # rows of a held-out split, in at least two groups: fewer are meaningless
LARGE = 0.2  # share of a split's rows: larger groups are used only if smaller ones do not fill it


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """What to hold out.

    Args:
        dev, test: shares of the rows of the file, 0 for none.
        most: maximum rows of each.
        near: as in `KnownTexts`; None: near-duplicates are not looked for.
    """

    dev: float
    test: float
    seed: int
    most: int
    near: float | None


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The split of R rows.

    Args:
        of_rows: (R,) int8, 0 train, 1 dev, 2 test.
        num_groups, largest_group: groups of linked rows, and rows of the largest.
        num_linked: rows of the file's own dev and test splits that are linked to its training rows.
    """

    of_rows: np.ndarray
    num_groups: int
    largest_group: int
    num_linked: int = 0


def sides_of(
    name: str,
    texts: Sequence[Sequence[str]],
    *,
    held_out: HeldOut,
    given: Sequence[str] | None,
    splits: Sequence[str] | None,
    origin: Sequence[int] | None = None,
) -> Sides:
    """Split rows into train, dev and test. The result depends on their texts and the seed, not on their order.

    Args:
        texts: of each row.
        given: name of each row's group; None: no groups.
        splits: each row's split in the file, which it keeps; dev and test are held out of the training rows if the file lacks them.
        origin: number of the file's row that each row comes from, since shares count those; None: each row is one.

    Raises:
        DataError: an unknown name of a split, too few rows, or too many linked rows to hold any out.
    """
    group_R = groups_of(texts, given=given, near=held_out.near)
    sizes = np.bincount(group_R)
    own_R = _own_sides(name, splits) if splits is not None else np.zeros(len(group_R), dtype=np.int8)
    if not (own_R == TRAIN).any():
        raise DataError(where=name, found="no training rows", expected="rows of split train", remedy="Name them train in the column split.")
    missing = [(side, share) for side, share in ((TEST, held_out.test), (DEV, held_out.dev)) if share and not (own_R == side).any()]
    side_R = own_R.copy()
    if missing:
        train_rows = np.flatnonzero(own_R == TRAIN)
        origin_R = np.arange(len(group_R)) if origin is None else np.asarray(origin)
        side_R[train_rows] = _drawn(name, texts, train_rows, group_R[train_rows], missing, held_out, origin_R[train_rows])
    train_groups = np.unique(group_R[own_R == TRAIN])
    return Sides(
        of_rows=side_R,
        num_groups=len(sizes),
        largest_group=int(sizes.max()),
        num_linked=int(np.isin(group_R[own_R != TRAIN], train_groups).sum()),
    )


def groups_of(texts: Sequence[Sequence[str]], *, given: Sequence[str] | None = None, near: float | None = None) -> np.ndarray:
    """Return (R,) the number of each row's group.

    Rows are linked, directly or through others, if they share a text (after `fold_disguised`), name the same group, or have two texts that
    are near-duplicates of two of the other row.
    """
    numbers: dict[str, int] = {}
    ids = [tuple(numbers.setdefault(fold_disguised(text) or f"\0{text}", len(numbers)) for text in row) for row in texts]
    links: list[tuple[int, Hashable]] = [(row, number) for row, own in enumerate(ids) for number in own]
    if near is not None:
        for one, other in _near_links(numbers, ids, near):
            links += [(one, (one, other)), (other, (one, other))]
    links += [(row, group) for row, group in enumerate(given or ()) if group]
    _, compact = np.unique(linked_groups(len(ids), links), return_inverse=True)
    return np.asarray(compact, dtype=np.int64)


def _near_links(numbers: Mapping[str, int], ids: Sequence[tuple[int, ...]], near: float) -> Iterator[tuple[int, int]]:
    """Links between rows with two texts that resemble two texts of the other row, or are inside one: level "near" of `leaks`."""
    known = {text: number for text, number in numbers.items() if not text.startswith("\0")}
    rows_of: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for row, own in enumerate(ids):
        for one, other in combinations(own, 2):
            rows_of[min(one, other), max(one, other)].append(row)
    finder = KnownTexts(known, near)
    alike: dict[int, tuple[int, ...]] = {}
    row_with = {number: row for row, own in enumerate(ids) for number in own}
    for (text, number), (others, inside) in zip(known.items(), finder.like(list(known)), strict=True):
        alike[number] = others
        for both in combinations(inside, 2):
            if both in rows_of and finder.are_apart(*both, text):
                yield from ((row, row_with[number]) for row in rows_of[both])
    for pair, rows in rows_of.items():
        if len(alike.get(pair[0], ())) < 2 and len(alike.get(pair[1], ())) < 2:
            continue
        for one, other in product(alike.get(pair[0], pair[:1]), alike.get(pair[1], pair[1:])):
            for near_row in rows_of.get((min(one, other), max(one, other)), ()):
                yield rows[0], near_row


def _own_sides(name: str, splits: Sequence[str]) -> np.ndarray:
    names = {split: OWN_NAMES.get(split.strip().casefold()) for split in dict.fromkeys(splits)}
    unknown = [split for split, side in names.items() if side is None]
    if unknown:
        remedy = "Rename it, or remove the column to have rows held out."
        raise DataError(where=f"{name}, split", found=brief(unknown[0]), expected=f"one of {', '.join(OWN_NAMES)}", remedy=remedy)
    return np.array([names[split] for split in splits], dtype=np.int8)


def _drawn(
    name: str,
    texts: Sequence[Sequence[str]],
    rows: np.ndarray,
    group_R: np.ndarray,
    missing: Sequence[tuple[int, float]],
    held_out: HeldOut,
    origin_R: np.ndarray,
) -> np.ndarray:
    """(R,) the split of each row: whole groups, ordered by their texts and the seed, until a split has its share of the file's rows."""
    members: defaultdict[int, list[int]] = defaultdict(list)
    for place, group in enumerate(group_R.tolist()):
        members[group].append(place)
    num_of = {group: len(set(origin_R[places].tolist())) for group, places in members.items()}  # rows of the file
    num_rows = len(set(origin_R.tolist()))
    rank = {group: min(digest_u64(held_out.seed, *texts[rows[place]]) for place in places) for group, places in members.items()}
    free = sorted(members, key=lambda group: (rank[group], num_of[group]))
    side_R = np.zeros(len(rows), dtype=np.int8)
    for side, share in missing:
        quota = min(max(LEAST, round(share * num_rows)), held_out.most)
        taken: set[int] = set()
        room = quota
        for largest in (max(1, int(LARGE * quota)), quota):
            for group in free:
                if group not in taken and num_of[group] <= min(largest, room):
                    taken.add(group)
                    room -= num_of[group]
        if quota - room < max(LEAST, quota // 2) or len(taken) < 2:
            raise _impossible(name, texts, rows, members, num_rows, side=SIDES[side])
        for group in taken:
            side_R[members[group]] = side
        free = [group for group in free if group not in taken]
    if not free:
        raise _impossible(name, texts, rows, members, num_rows, side="train")
    return side_R


def _impossible(
    name: str, texts: Sequence[Sequence[str]], rows: np.ndarray, members: Mapping[int, Sequence[int]], num_rows: int, *, side: str
) -> DataError:
    """The error for rows of which too many are linked to hold some out."""
    if num_rows < 4 * LEAST:
        expected = f"{4 * LEAST} at least, to hold some out"
        return DataError(where=name, found=counted(num_rows, "different row"), expected=expected, remedy="Add rows, or a column split.")
    largest = max(members.values(), key=len)
    often, times = Counter(text for place in largest for text in dict.fromkeys(texts[rows[place]])).most_common(1)[0]
    return DataError(
        where=name, found=f"{counted(len(largest), 'row')} of {num_rows:,} linked by shared texts",
        expected=f"enough other rows for {side}",
        remedy=f"Most share {brief(often)} ({counted(times, 'row')}): remove them, lower corpus.held_out.{side}, or add a column split.",
    )  # fmt: skip
