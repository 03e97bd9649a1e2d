"""Triples of mixed relations: how pairs are made, which ones are kept, where hard negatives come from."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sentdist.corpora.triples import RelationSource, held_out_relations, join_relations
from sentdist.errors import DataError

NLI = pa.table(
    {
        "premise": ["p1", "p1", "p2", "p1", "p3", "p2", "p3", "p1"],
        "hypothesis": ["e1", "c1", "e2", "e3", "c3", "n2", "c4", "e1"],
        "label": ["entailment", "contradiction", "entailment", "entailment", "contradiction", "neutral", "contradiction", "entailment"],
    }
)
CAPTIONS = pa.table({"image": ["x", "y", "x", "x", "y"], "sentence": ["x1", "y1", "x2", "x3", "y2"]})


def nli(**changes: object) -> RelationSource:
    return RelationSource(
        **({"name": "entailment", "tables": (NLI,), "construction": "nli", "columns": ("premise", "hypothesis", "label")} | changes)  # type: ignore[arg-type]
    )


def numbered(name: str, num_rows: int, *, num_heads: int | None = None, cap: int | None = None) -> RelationSource:
    heads = [f"{name} head {row % (num_heads or num_rows)}" for row in range(num_rows)]
    rows = pa.table({"sentence1": heads, "sentence2": [f"{name} tail {row}" for row in range(num_rows)]})
    return RelationSource(name=name, tables=(rows,), cap=cap)


def triples(table: pa.Table) -> list[tuple[str, str]]:
    return list(zip(table["anchor"].to_pylist(), table["positive"].to_pylist(), strict=True))


def test_captions_of_an_image_pair_up_and_a_cap_takes_the_first_rows_grouped_by_head() -> None:
    captions = RelationSource(name="same-caption", tables=(CAPTIONS,), construction="captions", columns=("image", "sentence"))
    found = join_relations([captions, numbered("twin", 12, num_heads=4, cap=4)])
    rows = [("x1", "x2"), ("x1", "x3"), ("x2", "x3"), ("y1", "y2")]
    assert triples(found.table) == [*rows, *(("twin head 0", f"twin tail {row}") for row in (0, 4, 8)), ("twin head 1", "twin tail 1")]
    assert all(negative[0] != "x" for negative in found.table["negative"].to_pylist()[:2])
    assert (found.counts["twin"].num_pairs, found.counts["twin"].num_kept) == (12, 4)


def test_only_rows_of_a_label_count() -> None:
    rows = pa.table({"q": ["a", "b", "c", "d"], "s": ["A", "B", "C", "D"], "label": ["entailment", "not_entailment", None, "entailment"]})
    found = join_relations([RelationSource(name="qa", tables=(rows,), columns=("q", "s"), only=("label", "entailment"))])
    assert triples(found.table) == [("a", "A"), ("d", "D")]
    assert found.table["negative"].to_pylist() == ["D", "A"]


def test_held_out_pairs_are_in_one_part_each() -> None:
    source = numbered("twin", 60, num_heads=20)
    table = join_relations([source], held_out=10).table
    train = set(triples(table))
    assert {*table["negative"].to_pylist()} <= {*table["positive"].to_pylist()}, "what is held out is no negative either"
    parts = {part: held_out_relations([source], held_out=10, part=part) for part in ("dev", "test")}
    pairs = {part: {(head, found.tails[tail]) for head, tail in zip(found.heads, found.tail, strict=True)} for part, found in parts.items()}
    assert len(train) == 40 and all(len(found) == 10 for found in pairs.values())
    assert train | pairs["dev"] | pairs["test"] == set(triples(join_relations([source]).table))
    for cap_rule in ("first", "sample"):
        assert set(triples(join_relations([numbered("twin", 60, num_heads=20, cap=15)], cap_rule=cap_rule, held_out=10).table)) < train


def test_each_draw_follows_from_the_seed() -> None:
    """What is held out, what a cap keeps, the negatives of pairs, and which contradiction of its premise a row has."""
    rows = [
        (f"p{number}", f"h{number} {kind}", "entailment" if kind == 0 else "contradiction") for number in range(12) for kind in range(7)
    ]
    table = pa.table(dict(zip(("premise", "hypothesis", "label"), map(list, zip(*rows, strict=True)), strict=True)))
    cases: tuple[tuple[RelationSource, dict[str, object], str], ...] = (
        (numbered("twin", 60), {"held_out": 10}, "anchor"),
        (numbered("twin", 60, cap=20), {"cap_rule": "sample"}, "anchor"),
        (numbered("twin", 60), {}, "negative"),
        (nli(tables=(table,)), {}, "negative"),
    )
    for source, settings, column in cases:
        found = {tuple(join_relations([source], seed=seed, **settings).table[column].to_pylist()) for seed in range(4)}  # type: ignore[arg-type]
        assert len(found) == 4
    assert len({held_out_relations([numbered("twin", 60)], held_out=10, part="test", seed=seed).heads for seed in range(4)}) == 4


@pytest.mark.parametrize(
    ("sources", "settings", "found"),
    [
        ([nli()], {"held_out": 2}, "3 pairs"),
        ([nli(columns=("premise", "hypothesis", "gold"))], {}, "premise, hypothesis, label"),
        ([nli(tables=(NLI.slice(4, 3),))], {}, "no pair in 3 rows"),
        ([numbered("twin", 6, num_heads=1)], {}, 'no other tail for "twin head 0"'),
    ],
)
def test_what_makes_no_triples_is_refused(sources: list[RelationSource], settings: dict[str, object], found: str) -> None:
    with pytest.raises(DataError, match=found):
        join_relations(sources, **settings)  # type: ignore[arg-type]
