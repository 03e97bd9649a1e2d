"""What a seed draws out of given rows is what it drew: keys hold the seed and not the draw, so that a key would mean other rows.

python -m tests.golden.test_draws     writes draws.json anew

An intended change edits draws.json in the same commit, says why, and bumps the revision of the stages that hold the draw.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

from sentdist.corpora.premises import group_by_premise
from sentdist.corpora.triples import RelationSource, held_out_relations, join_relations
from sentdist.data.augmentation import delete_words
from sentdist.data.corpus import OpenedCorpus, build_corpus
from sentdist.data.retrieval import fold_of_queries
from sentdist.data.sampler import epoch_batches
from sentdist.data.split import HeldOut, sides_of
from sentdist.tasks.task import drawn_rows

GOLDEN = Path(__file__).parent / "draws.json"
NUMBERS = range(24)
QUERIES = [f"q{number}" for number in NUMBERS]
WORDS = [" ".join(f"w{(number * place) % 17}" for place in range(1, 9)) for number in range(6)]
INFERENCE = [
    (f"p{number}", f"h{number} {kind}{place}", kind)
    for number in range(8)
    for kind in ("entailment", "contradiction")
    for place in range(4)
]


def _table(*columns: tuple[str, list[str]]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.large_string()) for name, values in columns})


def _inference() -> pa.Table:
    premises, hypotheses, labels = (list(column) for column in zip(*INFERENCE, strict=True))
    return _table(("premise", premises), ("hypothesis", hypotheses), ("label", labels))


def _pairs(**changes: object) -> RelationSource:
    rows = _table(("sentence1", [f"head {number % 9}" for number in NUMBERS]), ("sentence2", [f"tail {number}" for number in NUMBERS]))
    return RelationSource(**({"name": "twin", "tables": (rows,)} | changes))


def _lines(table: pa.Table) -> list[str]:
    return [" | ".join(map(str, row.values())) for row in table.to_pylist()]


def _limited_corpus(seed: int) -> list[int]:
    rows = _table(("one", [f"a {number}" for number in NUMBERS]), ("two", [f"b {number}" for number in NUMBERS]))
    with TemporaryDirectory() as folder:
        build_corpus(rows, columns=("one", "two"), folder=Path(folder), limit=8, seed=seed)
        corpus = OpenedCorpus.open(Path(folder))
        return [int(text.split()[1]) for text in corpus.sentences(corpus.ids[0])]


def _held_out(seed: int) -> list[str]:
    return [
        f"{part}: {head}" for part in ("dev", "test") for head in held_out_relations([_pairs()], held_out=4, part=part, seed=seed).heads
    ]


def _nli(seed: int) -> list[str]:
    source = RelationSource(name="nli", tables=(_inference(),), construction="nli", columns=("premise", "hypothesis", "label"))
    return join_relations([source], seed=seed).table["negative"].to_pylist()


def _sides(seed: int) -> list[int]:
    texts = [(f"question {number}", f"answer {number // 2}") for number in range(60)]
    held_out = HeldOut(dev=0.1, test=0.2, seed=seed, most=100, near=None)
    return sides_of("own", texts, held_out=held_out, given=None, splits=None).of_rows.tolist()


def _batches(seed: int, *, epoch: int) -> list[list[int]]:
    ids = pa.array([*NUMBERS, *(number // 2 + 24 for number in NUMBERS)]).to_numpy().reshape(2, 24)
    return epoch_batches(ids, batch_size=5, seed=seed, epoch=epoch, unique_sentences=True).tolist()


def _folds(seed: int, **settings: Any) -> list[int]:
    folds = fold_of_queries(QUERIES, seed=seed, **settings)
    return [folds[query] for query in QUERIES]


def _limit_of_task(seed: int) -> list[int]:
    return drawn_rows(24, f"mine-{seed}", 10).tolist()


DRAWS: dict[str, Callable[[int], object]] = {
    "batches of the first epoch": lambda seed: _batches(seed, epoch=0),
    "batches of the second epoch": lambda seed: _batches(seed, epoch=1),
    "rows within a limit": _limited_corpus,
    "folds": lambda seed: _folds(seed, num_folds=5),
    "folds of groups": lambda seed: _folds(seed, num_folds=3, groups={query: query[-1] for query in QUERIES}),
    "hypotheses of premises": lambda seed: _lines(group_by_premise(_inference(), num_positives=2, num_negatives=2, seed=seed)[0]),
    "hypotheses of others": lambda seed: _lines(group_by_premise(_inference(), num_positives=1, num_negatives=6, seed=seed)[0]),
    "premises within a limit": lambda seed: group_by_premise(_inference(), num_positives=1, num_negatives=1, limit=3, limit_seed=seed)[0][
        "anchor"
    ].to_pylist(),
    "augmented cells": lambda seed: _lines(
        group_by_premise(
            _inference(),
            num_positives=6,
            num_negatives=1,
            seed=seed,
            augment=lambda texts: [text.upper() for text in texts],
            augmented_fraction=0.5,
        )[0]
    ),
    "negatives of pairs": lambda seed: join_relations([_pairs()], seed=seed).table["negative"].to_pylist(),
    "contradictions of premises": _nli,
    "pairs within a cap": lambda seed: join_relations([_pairs(cap=8)], cap_rule="sample", seed=seed).table["positive"].to_pylist(),
    "pairs held out": _held_out,
    "rows held out": _sides,
    "words deleted": lambda seed: delete_words(WORDS, fraction=0.3, seed=seed),
    "items within a limit": _limit_of_task,
}


@pytest.mark.parametrize("name", DRAWS)
def test_seeds_draw_what_they_drew(name: str) -> None:
    found = [DRAWS[name](seed) for seed in (0, 1)]
    assert found == json.loads(GOLDEN.read_text())[name]
    assert found[0] != found[1]


if __name__ == "__main__":
    drawn = {name: [draw(seed) for seed in (0, 1)] for name, draw in DRAWS.items()}
    GOLDEN.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in drawn.items()) + "\n}\n")
