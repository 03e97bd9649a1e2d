"""The real data sets, where they are: sizes, overlap, speed of planning."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.data.folds import faq_pairs
from sentdist.data.overlap import pairs_seen
from sentdist.data.retrieval import read_retrieval
from sentdist.data.sources.pinned import inspect_source
from sentdist.data.sts_pairs import Pairs, read_pairs
from sentdist.errors import DataError
from sentdist.plan.pinned_tasks import pinned_task
from sentdist.plan.tasks import TASKS
from sentdist.stages.planning.resolve import FileResolver
from sentdist.stages.tasks.classification import LoadedClassification
from sentdist.stages.tasks.clustering import LoadedClustering
from sentdist.stages.tasks.load import load_task
from sentdist.stages.tasks.pairs import LoadedPairs

pytestmark = pytest.mark.data
STS_YEARS = {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186}


def _both(pairs: Pairs) -> list[tuple[str, str]]:
    return list(zip(pairs.sentence1, pairs.sentence2, strict=True))


def test_sizes_of_the_sts_sets(data_root: Path) -> None:
    others = {
        ("sts/stsb", "train"): 5749,
        ("sts/stsb", "dev"): 1500,
        ("sts/stsb", "test"): 1379,
        ("sts/sick", "train"): 4500,
        ("sts/sick", "test"): 4927,
    }
    for (name, split), num_pairs in ({(f"sts/{year}", "test"): count for year, count in STS_YEARS.items()} | others).items():
        pairs = read_pairs(name, split=split, data_root=data_root, score_range=(1, 5) if name == "sts/sick" else (0, 5))
        assert pairs.num_pairs == num_pairs == inspect_source(name, split=split, data_root=data_root).num_rows
        assert pairs.num_ungraded == 0


def test_stsb_train_has_seen_a_third_of_the_yearly_sets(data_root: Path) -> None:
    train = _both(read_pairs("sts/stsb", split="train", data_root=data_root))
    counts = [int(pairs_seen(_both(read_pairs(f"sts/{year}", data_root=data_root)), train).sum()) for year in STS_YEARS]
    assert counts == [1003, 597, 1861, 1102, 197]  # as written and in order: `test_leaks.py`
    assert sum(STS_YEARS.values()) == 12544


def test_stackfaq(data_root: Path) -> None:
    bank = read_retrieval("retrieval/stackfaq", data_root=data_root)
    assert (len(bank.queries), len(bank.documents), sum(map(len, bank.qrels.values()))) == (1249, 719, 7184)
    questions = read_retrieval("retrieval/stackfaq", data_root=data_root, document_field="question")
    assert len(set(questions.documents)) == 125
    answers = faq_pairs(bank, fold=0, num_folds=5, seed=0)
    assert answers.num_rows > faq_pairs(questions, fold=0, num_folds=5, seed=0).num_rows > 700


@pytest.mark.parametrize(
    ("name", "split", "queries", "documents", "empty"), [("scifact", "test", 300, 5183, 0), ("cranfield", None, 225, 1398, 2)]
)
def test_other_banks(data_root: Path, name: str, split: str | None, queries: int, documents: int, empty: int) -> None:
    bank = read_retrieval(f"retrieval/{name}", split=split, data_root=data_root)
    assert (len(bank.queries), len(bank.documents), len(bank.empty_document_ids)) == (queries, documents, empty)


def test_tasks_beside_pairs_and_banks_are_read_whole(data_root: Path) -> None:
    for name in (name for name, card in TASKS.items() if card.kind not in ("sts", "retrieval")):
        try:
            task = pinned_task(name, FileResolver(data_root=data_root))
        except DataError:
            continue  # not among the data
        loaded = load_task(task, str(data_root))
        if isinstance(loaded, LoadedClassification | LoadedClustering | LoadedPairs):
            assert loaded.rows.num_rows == TASKS[name].num_items
            assert loaded.rows.num_empty == {"cr": 4, "mpqa": 3}.get(name.removesuffix("-dev"), 0)
