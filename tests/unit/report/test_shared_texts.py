"""A mean over tasks that share texts: what is drawn once counts once, and it is reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sentdist.data.leaks import TaskTexts, shared_groups
from sentdist.evaluation.items import joint_groups
from sentdist.report.comparisons import AVERAGE
from sentdist.report.evaluated import Compared, compare_evaluated, scored
from sentdist.tasks.kinds import TASK_KINDS
from tests.support.tasks_data import evaluated, write_table
from tests.support.tiny_encoders import WORDS

NOTE = "In the mean, items that share texts count as one group across tasks, too: "


def _rows(generator: np.random.Generator, count: int) -> list[dict[str, object]]:
    """Graded pairs of which no two have a text in common, but by chance."""
    words = np.array(sorted(set(WORDS)))
    texts = [" ".join(generator.choice(words, size)) for size in generator.integers(3, 8, 2 * count)]
    return [{"sentence1": texts[2 * n], "sentence2": texts[2 * n + 1], "score": float(generator.integers(0, 6))} for n in range(count)]


def _compared(encoders: tuple[Path, Path], tasks: tuple[str, ...], root: Path) -> Compared:
    measures = {f"sts-{task}": TASK_KINDS["sts"].main for task in tasks}
    made = [
        evaluated(one, tuple(f"sts={task}" for task in tasks), data=root, store=root / f"store-{one.name}-{'-'.join(tasks)}")
        for one in encoders
    ]
    first, second = (scored(one.record.results, context.store.folder(one), measures) for one, context in made)
    return compare_evaluated(("a", "b"), (first, second), measures)


@pytest.fixture
def encoders(tiny_encoder_dir: Path, tiny_roberta_dir: Path) -> tuple[Path, Path]:
    return tiny_encoder_dir, tiny_roberta_dir


def test_the_mean_of_a_task_with_itself_is_as_sure_as_the_task(encoders: tuple[Path, Path], tmp_path: Path) -> None:
    rows = _rows(np.random.default_rng(0), 60)
    write_table(tmp_path, "one", rows)
    write_table(tmp_path, "same", rows[::-1])
    write_table(tmp_path, "other", _rows(np.random.default_rng(1), 60))
    both = _compared(encoders, ("one", "same"), tmp_path)
    first, _, mean = both.lines
    assert mean.task == AVERAGE and mean.difference.error == pytest.approx(first.difference.error)
    assert mean.difference.p == pytest.approx(first.difference.p) and mean.difference.low == pytest.approx(first.difference.low)
    assert f"{NOTE}sts-one, sts-same." in both.notes
    apart = _compared(encoders, ("one", "other"), tmp_path)
    one, other, mean = (line.difference.error for line in apart.lines)
    assert mean == pytest.approx(np.hypot(one, other) / 2) and not any(note.startswith(NOTE) for note in apart.notes)


def test_texts_that_tasks_have_in_common_link_their_groups() -> None:
    pairs = {"x": [("a", "b"), ("c", "d"), ("e", "f")], "y": [("g", "h"), ("b", "i"), ("i", "c")], "z": [("k", "l"), ("h", "m")]}
    tasks = [TaskTexts.of_pairs(name, both) for name, both in pairs.items()]
    x, y, z = (one.tolist() for one in shared_groups([(task, task.groups()) for task in tasks]))
    assert x == [y[1], y[1], -1], "two groups of x are one through y"
    assert y[1] == y[2] != y[0] == z[1] and z[0] == -1
    assert [one.tolist() for one in shared_groups([(tasks[0], tasks[0].groups())])] == [[-1, -1, -1]]


def _by_loops(sizes: list[int], shared: list[list[tuple[int, int]]]) -> list[set[tuple[int, int]]]:
    """Sets of (task, group) that are one, by merging until nothing changes."""
    sets = [{(task, group)} for task, size in enumerate(sizes) for group in range(size)]
    numbers = {number for pairs in shared for _, number in pairs}
    for number in numbers:
        members = {(task, group) for task, pairs in enumerate(shared) for group, one in pairs if one == number}
        touched = [one for one in sets if one & members]
        sets = [one for one in sets if not one & members] + [set().union(*touched)]
    return sets


@pytest.mark.parametrize("seed", range(3))
def test_joint_groups_are_those_of_merging_by_hand(seed: int) -> None:
    generator = np.random.default_rng(seed)
    sizes = generator.integers(2, 7, 4).tolist()
    shared = [[(int(generator.integers(size)), int(generator.integers(4))) for _ in range(generator.integers(3))] for size in sizes]
    sets = _by_loops(sizes, shared)
    joint = joint_groups(
        [np.zeros(size, dtype=np.intp) for size in sizes], [np.array(pairs, dtype=np.int64).reshape(-1, 2) for pairs in shared]
    )
    if any(sum(task in {one for one, _ in members} for members in sets) == 1 for task in range(len(sizes))):
        assert joint.strata.tolist() == [0] and not joint.place.any(), "nothing can be said of other items"
        return
    names = [(task, group) for task, size in enumerate(sizes) for group in range(size)]
    found: dict[int, set[tuple[int, int]]] = {}
    for name, place in zip(names, joint.place.tolist(), strict=True):
        found.setdefault(place, set()).add(name)
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, sets))
    assert sorted(found) == list(range(len(joint.strata))) and (np.diff(joint.strata) >= 0).all()
    assert set(joint.strata.tolist()) == set(range(max(joint.strata) + 1))
    strata = [{task for place in np.flatnonzero(joint.strata == one) for task, _ in found[place]} for one in range(max(joint.strata) + 1)]
    assert sorted(task for one in strata for task in one) == list(range(len(sizes))), "each task is in one stratum"
    assert joint.tasks == tuple(sorted(task for one in strata if len(one) > 1 for task in one))
    for one in found.values():
        assert any({task for task, _ in one} <= stratum for stratum in strata)
    values = generator.normal(size=len(names))
    expected = [sum(values[names.index(name)] for name in found[place]) for place in range(len(joint.strata))]
    np.testing.assert_allclose(joint.sums(values), expected)
