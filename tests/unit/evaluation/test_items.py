"""What files of items say: contributions by measure, groups, folds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sentdist.data.checked_rows import read_pairs
from sentdist.data.leaks import TaskTexts
from sentdist.errors import DataError
from sentdist.evaluation.items import Columns, items_of, joined, why_undefined
from sentdist.plan.specs import Fold, Task
from sentdist.plan.task_kinds import ClusteringTask
from sentdist.stages.tasks.classification import load_clustering
from sentdist.stages.tasks.retrieval import load_retrieval
from tests.support.tasks_data import write_table


def test_items_that_share_a_text_belong_together() -> None:
    texts = TaskTexts.of_pairs("pairs", [("a", "b"), ("c", "d"), ("b", "e"), ("f", "c"), ("g", "h")])
    groups = texts.groups()
    assert groups[0] == groups[2] and groups[1] == groups[3] and len(set(groups.tolist())) == 3


def test_what_a_source_calls_a_group_belongs_together(tmp_path: Path) -> None:
    path = tmp_path / "my" / "pairs.csv"
    path.parent.mkdir()
    path.write_text("sentence1,sentence2,score,group\na,b,1,x\nc,d,2,y\ne,f,,x\ng,h,3,x\n")
    pairs = read_pairs("my/pairs", data_root=tmp_path)
    assert pairs.group == ("x", "y", "x") and pairs.num_ungraded == 1
    texts = TaskTexts.of_pairs("pairs", zip(pairs.sentence1, pairs.sentence2, strict=True), given_groups=pairs.group)
    assert texts.groups()[0] == texts.groups()[2] != texts.groups()[1]


def test_queries_with_one_answer_belong_together() -> None:
    texts = TaskTexts(name="faq", sentences=(("q1",), ("q2",), ("q3",)), pairs=((0, "q1", "same"), (1, "q2", "same"), (2, "q3", "other")))
    assert texts.groups()[0] == texts.groups()[1] != texts.groups()[2]


def test_groups_sum_their_items_and_keep_their_shares() -> None:
    columns = {"accuracy": np.array([100.0, 0.0, 100.0, 100.0]), "group": np.array([1, 0, 1, 2]), "query_id": np.array(list("abcd"))}
    found = items_of(columns, task="mine", where="here")
    assert found is not None and found.has_groups and found.identity.tolist() == list("abcd")
    np.testing.assert_allclose(found.by_group(), [-75 / 4, 50 / 4, 25 / 4])
    np.testing.assert_allclose(found.group_weights(), [0.25, 0.5, 0.25])


def test_folds_weigh_alike_whatever_their_size() -> None:
    folds = [items_of({"map": np.array(values)}, task="faq:map", where="here") for values in ([10.0, 30.0], [50.0, 60.0, 70.0])]
    both = joined([fold for fold in folds if fold is not None])
    np.testing.assert_allclose(both.weights, [1 / 4, 1 / 4, 1 / 6, 1 / 6, 1 / 6])
    np.testing.assert_allclose(both.contributions, [-5 / 2, 5 / 2, -10 / 6, 0, 10 / 6], atol=1e-12)


@pytest.mark.parametrize("of_first", [{}, {"group": np.array([1, 1])}])  # an older version has written none for the second
def test_items_of_folds_of_which_one_names_no_groups_stand_for_themselves(of_first: Columns) -> None:
    first = items_of({"map": np.array([10.0, 30.0]), **of_first}, task="faq:map", where="here")
    other = items_of({"map": np.array([50.0, 60.0, 70.0])}, task="faq:map", where="here")
    both = joined([fold for fold in (first, other) if fold is not None])
    assert not both.has_groups
    np.testing.assert_allclose(both.by_group(), both.contributions)


def test_parts_vary_by_themselves_but_those_that_have_a_group_in_common() -> None:
    parts = [
        items_of({"map": np.array(values), "group": np.array(groups)}, task="faq:map", where="here")
        for values, groups in (([1.0, 5.0, 9.0], [7, 3, 7]), ([2.0, 4.0], [8, 1]), ([6.0, 0.0], [3, 2]))
    ]
    found = joined([part for part in parts if part is not None])
    assert found.parts.tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert found.strata.tolist() == [0, 0, 0, 1, 1]  # groups 2, 3 and 7, then 1 and 8
    np.testing.assert_allclose(found.group_weights(), np.array([1 / 2, 1 / 3 + 1 / 2, 2 / 3, 1 / 2, 1 / 2]) / 3)
    np.testing.assert_allclose(found.by_group(), np.array([-1.5, 1.5, 0, 0.5, -0.5]) / 3, atol=1e-12)


def test_a_mean_over_parts_gives_each_part_one_share() -> None:
    columns = {"map@100": np.array([10.0, 30.0, 60.0]), "stratum": np.array(["a", "a", "b"]), "query_id": np.array(list("xyz"))}
    found = items_of(columns, task="forums", where="here")
    assert found is not None
    np.testing.assert_allclose(found.weights, [1 / 4, 1 / 4, 1 / 2])
    np.testing.assert_allclose(found.contributions, [-10 / 4, 10 / 4, 0.0])
    assert found.strata.tolist() == [0, 0, 1]


def test_f1_is_that_of_the_later_label() -> None:
    columns = {"label": np.array(["0", "1", "1", "0"]), "predicted": np.array(["0", "1", "0", "1"]), "accuracy": np.zeros(4)}
    found = items_of(columns, task="mrpc:f1", where="here")
    assert found is not None and found.contributions.tolist() == pytest.approx([0.0, 25.0, -12.5, -12.5])


def test_a_measure_of_any_name_is_the_one_that_a_task_s_name_means() -> None:
    columns = {"query_id": np.array(list("ab")), "recall@1": np.array([100.0, 0.0]), "group": np.arange(2)}
    found = items_of(columns, task="bitext", where="here")
    assert found is not None and found.contributions.tolist() == [25.0, -25.0] and found.identity.tolist() == ["a", "b"]


def test_what_has_no_spread_has_no_items_and_what_has_no_column_is_refused() -> None:
    constant = {"similarity": np.ones(3), "score": np.arange(3.0)}
    assert items_of(constant, task="sts", where="here") is None
    assert items_of({"label": np.arange(3), "cluster": np.zeros(3)}, task="c", where="here") is None
    with pytest.raises(DataError, match='or "mrr"'):
        items_of({"map": np.ones(2)}, task="faq:mrr", where="here")


def test_folds_of_a_collection_number_its_groups_alike(tmp_path: Path) -> None:
    """Queries of two folds that share an answer hang together; those of two groups never do."""
    groups = [number // 4 for number in range(24)]  # six answers, four queries each
    write_table(tmp_path, "my/faq_docs", [{"doc_id": f"d{group}", "text": f"answer {group}", "title": ""} for group in sorted(set(groups))])
    write_table(tmp_path, "my/faq_queries", [{"query_id": f"q{row}", "query": f"question {row}"} for row in range(24)])
    judged = [{"query_id": f"q{row}", "doc_id": f"d{group}", "relevance": 1} for row, group in enumerate(groups)]
    write_table(tmp_path, "my/faq_qrels", judged)
    found: dict[int, set[int]] = {}
    for number in range(3):
        fold = Fold(number=number, num_folds=3)
        task = Task(name="faq", kind="retrieval", source="my/faq", revision="", fold=fold, fold_role="test")
        loaded = load_retrieval(task, tmp_path)
        texts = loaded.texts()
        assert texts.num_items == len(loaded.rows) == 8
        for row, group in zip(loaded.rows, texts.groups().tolist(), strict=True):
            found.setdefault(groups[row], set()).add(group)
    assert all(len(numbers) == 1 for numbers in found.values())
    assert len(set().union(*found.values())) == 6


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_an_accuracy_is_in_points_whatever_an_older_file_has(scale: float) -> None:
    right = np.random.default_rng(0).random(400) < 0.5
    found = items_of({"accuracy": scale * right}, task="triplets", where="here")
    assert found is not None
    spread = float(np.sqrt(np.sum(found.contributions**2)))
    assert spread == pytest.approx(100 * np.sqrt(right.mean() * (1 - right.mean()) / 400), rel=1e-6), "the standard error of a share"


def test_repeated_texts_of_a_clustering_belong_together(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"text": f"text {number % 10}", "label": str(number % 2)} for number in range(40)]
    write_table(tmp_path, "my/labels", rows)
    texts = load_clustering(ClusteringTask(name="mine", source="my/labels", revision=""), tmp_path).texts()
    assert texts.num_items == 40 and len(set(texts.groups().tolist())) == 10


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"score": [2.0, 2.0], "similarity": [0.1, 0.2]}, "no two different gold scores among its 2 pairs"),
        ({"label": [1, 1], "similarity": [0.1, 0.2]}, "no two different labels among its 2 pairs"),
        ({"label": [1, 0], "similarity": [0.1, 0.1]}, "the encoder gives all pairs one similarity"),
        ({"score": [1.0, 2.0, 3.0], "similarity": [0.1, 0.2, 0.3], "subset": ["a", "a", "b"]}, "among its 1 pair of subset b"),
        ({"label": [1, 0], "cluster": [0, 0]}, "fewer different embeddings than there are labels"),
        ({"query_id": ["q"], "map": [50.0]}, "the candidates of each query one score"),
    ],
)
def test_items_without_a_score_say_why(columns: dict[str, list[object]], why: str) -> None:
    given: Columns = {name: np.array(values) for name, values in columns.items()}
    assert why in why_undefined(given)
