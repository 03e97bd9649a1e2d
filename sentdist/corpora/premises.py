"""Group NLI hypotheses by premise into rows with several positives and negatives (SupMPN)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentdist.data.corpus import numbered_texts
from sentdist.data.sampler import MAX_DRAWS, drawn_rows, random_words, shuffled
from sentdist.data.tables import check_columns
from sentdist.errors import DataError

Fill = Literal["own_then_copies", "copies"]
Augment = Callable[[Sequence[str]], Sequence[str]]
COLUMNS = ("premise", "hypothesis", "label")
ENTAILMENT, CONTRADICTION = "entailment", "contradiction"
COUNTED_TO = 5  # Table 1 of SupMPN counts premises with 1 to 5 or more hypotheses of a kind


@dataclass(frozen=True, kw_only=True)
class GroupFacts:
    """Counts of premises, their hypotheses and filled cells.

    Args:
        num_premises: distinct premises with an entailment or a contradiction.
        num_left_out: premises with too few of either.
        num_groups: rows; fewer than the remaining premises with a limit.
        num_whole: rows with P own entailments and Q own contradictions.
        num_filled_positives, num_filled_negatives: cells that were filled.
        num_augmented: filled positives that are not copies of the anchor.
        num_unchanged: augmented positives equal to their original.
        num_contradictory: hypotheses with both labels under one premise, left out.
    """

    num_premises: int
    num_left_out: int
    num_groups: int
    num_whole: int
    num_filled_positives: int
    num_augmented: int
    num_unchanged: int
    num_filled_negatives: int
    num_contradictory: int


def inference_rows(
    rows: pa.Table,
    *,
    columns: tuple[str, str, str] = COLUMNS,
    labels: tuple[str, str] = (ENTAILMENT, CONTRADICTION),
    where: str = "premises",
) -> pa.Table:
    """Return columns premise, hypothesis and label ("entailment", "contradiction" or null) of a source.

    Args:
        columns: their names in the source.
        labels: entailment and contradiction in the source, such as "0" and "2".

    Raises:
        DataError: absent columns, or a label that occurs in no row.
    """
    check_columns(where, rows.column_names, columns)
    premise, hypothesis, label = (rows[column].cast(pa.large_string()) for column in columns)
    present = pc.unique(label).to_pylist()
    for wanted in labels:
        if wanted not in present:
            found = ", ".join(sorted(str(one) for one in present)[:6])
            raise DataError(where=where, found=f"labels {found}", expected=f'"{wanted}" among them', remedy="Set the labels of the source.")
    known = pa.chunked_array([pa.array([ENTAILMENT, CONTRADICTION], pa.large_string())])
    return pa.table(
        {
            "premise": premise,
            "hypothesis": hypothesis,
            "label": known.take(pc.index_in(label, value_set=pa.array(labels, pa.large_string()))),
        }
    )


def group_by_premise(
    rows: pa.Table,
    *,
    num_positives: int,
    num_negatives: int,
    seed: int = 0,
    fill: Fill = "own_then_copies",
    at_least: int = 1,
    augment: Augment | None = None,
    augmented_fraction: float = 1.0,
    limit: int | None = None,
    limit_seed: int = 0,
) -> tuple[pa.Table, GroupFacts]:
    """Return columns anchor, positive_1 … positive_P, negative_1 … negative_Q (large_string), one row per premise in order of appearance.

    If a premise has more than P entailments (Q contradictions), P (Q) are drawn without replacement. Missing negatives are drawn from the
    hypotheses of *other* premises, never a sentence of the premise and none twice. Missing positives are copies of the anchor ("None" in
    Table A1), or `augment` of the premise's entailments in turn for a random `augmented_fraction` of the missing cells. Every choice
    depends on the seeds and the rows only. Source: Dehghan and Amasyali 2022, Sections 5.1, 5.2 and Appendix A.1.

    Args:
        rows: from `inference_rows`; rows with an empty cell or other labels are ignored, repeated rows count once.
        fill: "own_then_copies": the premise's entailments come first; "copies": a premise with fewer than P uses none of them (the other
            reading of the paper's appendix).
        at_least: entailments, and contradictions, that a premise needs (SupMPN: 1; its sub-SNLI: 5).
        limit: number of rows, drawn with `limit_seed` in order; negatives are still drawn from all premises.

    Raises:
        DataError: no premise with enough hypotheses, or too few sentences to draw from.
    """
    hypotheses = _hypotheses(rows)
    entailments_P, contradictions_P = hypotheses.counts(0), hypotheses.counts(1)
    with_enough = np.flatnonzero((entailments_P >= at_least) & (contradictions_P >= at_least))
    if len(with_enough) == 0:
        found = f"no premise with {at_least} entailments and {at_least} contradictions among {len(entailments_P)}"
        remedy = "Use a source with repeated premises and one row per hypothesis, or lower the numbers."
        raise DataError(where="premises", found=found, expected="at least one", remedy=remedy)
    groups = with_enough[drawn_rows(len(with_enough), limit, seed=limit_seed)]
    entailed_GP = _drawn(hypotheses, 0, groups, num_positives, seed)
    positives_GP = entailed_GP.copy()
    if fill == "copies":
        positives_GP[(entailed_GP < 0).any(axis=1)] = -1
    negatives_GQ = _drawn(hypotheses, 1, groups, num_negatives, seed)
    lacks_P, lacks_N = positives_GP < 0, negatives_GQ < 0
    _fill_negatives(negatives_GQ, hypotheses, groups, seed)
    positives, num_augmented, num_unchanged = _filled_positives(
        positives_GP, entailed_GP, hypotheses, groups, augment, augmented_fraction, seed
    )
    facts = GroupFacts(
        num_premises=len(entailments_P),
        num_left_out=len(entailments_P) - len(with_enough),
        num_groups=len(groups),
        num_whole=int(np.count_nonzero(~lacks_P.any(axis=1) & ~lacks_N.any(axis=1))),
        num_filled_positives=int(lacks_P.sum()),
        num_augmented=num_augmented,
        num_unchanged=num_unchanged,
        num_filled_negatives=int(lacks_N.sum()),
        num_contradictory=hypotheses.num_contradictory,
    )
    columns = {"anchor": hypotheses.strings.take(pa.array(hypotheses.premises[groups]))}
    columns |= {f"positive_{number}": column for number, column in enumerate(positives, start=1)}
    columns |= {f"negative_{number}": hypotheses.strings.take(pa.array(column)) for number, column in enumerate(negatives_GQ.T, start=1)}
    return pa.table(columns), facts


def counted_premises(rows: pa.Table) -> dict[str, int]:
    """Return the number of premises with k of each kind of hypothesis ("1" … "4" exactly, "2-4", "5+"), as in SupMPN's Table 1."""
    found = _hypotheses(rows)
    both = np.stack([found.counts(0), found.counts(1)])
    exactly = {str(number): int(np.count_nonzero((both == number).all(axis=0))) for number in range(1, COUNTED_TO)}
    few = int(np.count_nonzero(((both > 1) & (both < COUNTED_TO)).all(axis=0)))
    return exactly | {"2-4": few, "5+": int(np.count_nonzero((both >= COUNTED_TO).all(axis=0)))}


@dataclass(frozen=True, kw_only=True)
class _Hypotheses:
    """H entailments (kind 0) and contradictions (kind 1) of P premises, sorted by premise, kind and appearance.

    strings: every sentence once. premises: (P,) string of each premise. premise, kind, string: (H,).
    """

    strings: pa.LargeStringArray
    premises: np.ndarray
    premise: np.ndarray
    kind: np.ndarray
    string: np.ndarray
    num_contradictory: int

    def counts(self, kind: int) -> np.ndarray:
        """(P,) the number of hypotheses of a kind."""
        return np.bincount(self.premise[self.kind == kind], minlength=len(self.premises))


def _hypotheses(rows: pa.Table) -> _Hypotheses:
    kinds = pc.index_in(rows["label"].cast(pa.large_string()), value_set=pa.array([ENTAILMENT, CONTRADICTION], pa.large_string()))
    texts = [rows[column].cast(pa.large_string()) for column in ("premise", "hypothesis")]
    kept = pc.is_valid(kinds)
    for text in texts:
        kept = pc.and_(kept, pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(text), ""), False))
    strings, (premise, string) = numbered_texts([text.filter(kept) for text in texts])
    return _sorted(strings, premise, string, kinds.filter(kept).combine_chunks().to_numpy().astype(np.int64))


def _sorted(strings: pa.LargeStringArray, premise: np.ndarray, string: np.ndarray, kind: np.ndarray) -> _Hypotheses:
    """Drop repeated and contradictory hypotheses; number premises in order of first appearance."""
    pair = premise * len(strings) + string  # below 2⁶³ for 3 · 10⁹ sentences
    pairs, first, of_pair = np.unique(pair, return_index=True, return_inverse=True)
    kinds_of_pair = np.zeros((2, len(pairs)), dtype=bool)
    kinds_of_pair[kind, of_pair] = True
    is_both = kinds_of_pair.all(axis=0)
    kept = np.sort(first[~is_both])
    premises = _in_order(premise[kept])
    number_of = np.full(len(strings), -1)
    number_of[premises] = np.arange(len(premises))
    order = np.lexsort((kept, kind[kept], number_of[premise[kept]]))
    chosen = kept[order]
    return _Hypotheses(
        strings=strings,
        premises=premises,
        premise=number_of[premise[chosen]],
        kind=kind[chosen],
        string=string[chosen],
        num_contradictory=int(is_both.sum()),
    )


def _in_order(values: np.ndarray) -> np.ndarray:
    return values[np.sort(np.unique(values, return_index=True)[1])]


def _drawn(found: _Hypotheses, kind: int, groups: np.ndarray, count: int, seed: int) -> np.ndarray:
    """(G, count) strings of each group's hypotheses of a kind, at most `count` drawn without replacement; −1 for missing ones."""
    places = np.flatnonzero(found.kind == kind)
    premise = found.premise[places]
    by_chance = np.lexsort((random_words(len(places), seed=seed, stream=f"hypotheses {kind}"), premise))
    rank = np.arange(len(places)) - np.searchsorted(premise, premise[by_chance])  # `premise` is sorted, and so is premise[by_chance]
    chosen = np.sort(by_chance[rank < count])  # back in the order of appearance
    column = np.arange(len(chosen)) - np.searchsorted(premise[chosen], premise[chosen])
    row_of = np.full(len(found.premises), -1)
    row_of[groups] = np.arange(len(groups))
    is_grouped = row_of[premise[chosen]] >= 0
    drawn = np.full((len(groups), count), -1, dtype=np.int64)
    drawn[row_of[premise[chosen]][is_grouped], column[is_grouped]] = found.string[places[chosen]][is_grouped]
    return drawn


def _fill_negatives(negatives_GQ: np.ndarray, found: _Hypotheses, groups: np.ndarray, seed: int) -> None:
    """Replace every −1 by a hypothesis of another premise that is neither the anchor, nor a hypothesis of the premise, nor in the row."""
    own_pairs = np.unique(np.concatenate([found.premise, np.arange(len(found.premises))]) * len(found.strings)
                          + np.concatenate([found.string, found.premises]))  # fmt: skip
    rows, columns = np.nonzero(negatives_GQ < 0)
    for draw in range(MAX_DRAWS):
        if len(rows) == 0:
            return
        words = random_words(len(rows), seed=seed, stream=f"negatives {draw}")
        drawn = found.string[(words % np.uint64(len(found.string))).astype(np.int64)]
        pair = groups[rows] * len(found.strings) + drawn
        place = np.minimum(np.searchsorted(own_pairs, pair), len(own_pairs) - 1)
        negatives_GQ[rows, columns] = np.where(own_pairs[place] == pair, -1, drawn)
        _blank_repeats(negatives_GQ, rows, columns)
        is_open = negatives_GQ[rows, columns] < 0
        rows, columns = rows[is_open], columns[is_open]
    if len(rows):
        raise DataError(
            where="premises",
            found=f"too few sentences of other premises to find {negatives_GQ.shape[1]} different negatives for premise {groups[rows[0]]}",
            expected="a source with many more premises than negatives",
            remedy="Lower the number of negatives or add rows.",
        )


def _blank_repeats(negatives_GQ: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> None:
    """Set −1 in those of the cells whose sentence is in another cell of the row, further left or not among the cells."""
    fresh = np.zeros(negatives_GQ.shape, dtype=bool)
    fresh[rows, columns] = True
    touched = np.unique(rows)
    values, is_fresh = negatives_GQ[touched], fresh[touched]
    order = np.lexsort((is_fresh, values), axis=1)  # in a row by sentence, older cells first
    ordered = np.take_along_axis(values, order, axis=1)
    repeats = np.zeros(ordered.shape, dtype=bool)
    repeats[:, 1:] = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    is_repeat = np.zeros(values.shape, dtype=bool)
    np.put_along_axis(is_repeat, order, repeats, axis=1)
    values[is_repeat] = -1
    negatives_GQ[touched] = values


def _filled_positives(
    positives_GP: np.ndarray,
    entailed_GP: np.ndarray,
    found: _Hypotheses,
    groups: np.ndarray,
    augment: Augment | None,
    augmented_fraction: float,
    seed: int,
) -> tuple[list[pa.Array], int, int]:
    """P columns of sentences, the number of augmented cells, and how many of those are unchanged."""
    rows, columns = np.nonzero(positives_GP < 0)
    positives_GP[rows, columns] = found.premises[groups[rows]]
    strings = found.strings
    num_augmented = num_unchanged = 0
    if augment is not None and len(rows):
        num_augmented = round(augmented_fraction * len(rows))
        cells = np.sort(shuffled(len(rows), seed=seed, stream="augmented cells")[:num_augmented])
        rows, columns = rows[cells], columns[cells]
        num_own = (entailed_GP >= 0).sum(axis=1)[rows]
        sentences = found.strings.take(pa.array(entailed_GP[rows, columns % num_own])).to_pylist()
        augmented = list(augment(sentences))
        num_unchanged = sum(new == old for new, old in zip(augmented, sentences, strict=True))
        positives_GP[rows, columns] = len(strings) + np.arange(len(rows))
        strings = pa.concat_arrays([strings, pa.array(augmented, pa.large_string())])
    return [strings.take(pa.array(column)) for column in positives_GP.T], num_augmented, num_unchanged
