"""CQADupStack as USEB scores it, the best of several relations, and how USEB's four tasks are averaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import average_precision_score

from sentdist.data.checked_rows import Forum, read_forums
from sentdist.errors import DataError
from sentdist.evaluation.items import items_of
from sentdist.evaluation.nearest import word_scores
from sentdist.evaluation.retrieval import average_precisions
from sentdist.learning.relation_file import Relations
from sentdist.plan.specs import RelationalScoring
from sentdist.plan.task_kinds import ForumsTask
from sentdist.report.sweep_rows import COLUMNS, useb_scores
from sentdist.stages.scores.build import mean_of_parts, score_by
from sentdist.stages.scores.scorer import COSINE, CosineScorer, RelationalScorer
from sentdist.stages.tasks.loaded_task import TaskScore
from sentdist.stages.tasks.retrieval import LoadedForums, load_forums
from tests.support.tasks_data import write_forums

TASK = ForumsTask(name="cqadupstack", source="retrieval/cqadupstack", revision="any", split="test")


def test_a_forum_s_pool_is_without_what_is_asked(tmp_path: Path) -> None:
    write_forums(tmp_path / "retrieval/cqadupstack")
    android, gis = read_forums("retrieval/cqadupstack", split="test", data_root=tmp_path)
    assert android.queries == ("how to root a phone", "phone gets hot") and android.pool == ("rooting my phone", "battery is empty")
    assert android.duplicates == (frozenset({0}), frozenset({1})) and gis.pool == ("maps, what are they", "how far is it")
    with pytest.raises(DataError, match="one of valid, test"):
        read_forums("retrieval/cqadupstack", split="train", data_root=tmp_path)
    with pytest.raises(DataError, match="no release"):
        read_forums("retrieval/other", split="test", data_root=tmp_path)


def test_average_precision_is_that_of_useb_s_code() -> None:
    random = np.random.default_rng(0)
    documents = np.array([random.permutation(130) for _ in range(20)])  # of which the first hundred count
    relevant = [frozenset(random.choice(130, size=random.integers(1, 9), replace=False).tolist()) for _ in range(20)]
    hits = np.array([[one in known for one in row[:100]] for row, known in zip(documents, relevant, strict=True)])
    expected = [100 * average_precision_score(row, -np.arange(100)) if row.any() else 0.0 for row in hits]
    np.testing.assert_allclose(average_precisions(documents, relevant), expected)
    assert average_precisions(np.array([[0, 1]]), [frozenset({5})]).tolist() == [0.0]


def test_forums_count_alike_however_many_questions_they_have(tmp_path: Path) -> None:
    write_forums(tmp_path / "retrieval/cqadupstack")
    task = load_forums(TASK, tmp_path)
    places = {text: number for number, text in enumerate(dict.fromkeys(task.sentences))}
    vectors = np.eye(len(places))
    right = {"rooting my phone": "how to root a phone", "maps, what are they": "what is a map"}
    rows = np.array([vectors[places[right.get(text, text)]] for text in task.sentences])
    score = task.score(rows, COSINE)
    per_query = score.items["map@100"].to_numpy()
    assert score.main == pytest.approx((np.mean(per_query[:2]) + per_query[2]) / 2) and per_query[0] == per_query[2] == 100
    assert score.items["query_id"].to_pylist() == ["android:1", "android:4", "gis:1"], "forums number their questions alike"
    columns = {name: score.items[name].to_numpy() for name in score.items.column_names}
    items = items_of(columns, task="cqadupstack", where="test")
    assert items is not None and items.weights.tolist() == [0.25, 0.25, 0.5]
    assert items.contributions.sum() == pytest.approx(0) and items.contributions[2] == 0, "alone in its forum"
    assert task.score_words("bm25").main is not None
    assert (1, "phone gets hot", "battery is empty") in task.texts().pairs


class Turned(CosineScorer):
    def queries(self, queries_QD: np.ndarray, *, where: str) -> np.ndarray:
        return -queries_QD


def test_each_forum_is_ranked_by_its_own_embeddings_and_words_to_a_hundred_places() -> None:
    random = np.random.default_rng(0)
    forums = tuple(
        Forum(
            name=name,
            query_ids=tuple(f"{name}:{number}" for number in range(num_queries)),
            queries=tuple(f"which {number} of {name}" for number in range(num_queries)),
            pool=tuple(f"the {number} of {name}" for number in range(num_others)),
            duplicates=tuple(frozenset(random.choice(num_others, size=3, replace=False).tolist()) for _ in range(num_queries)),
        )
        for name, num_queries, num_others in (("a", 3, 20), ("b", 5, 130), ("c", 2, 40))
    )
    task = LoadedForums(task=TASK, forums=forums)
    rows = dict(zip(task.sentences, random.normal(size=(len(task.sentences), 6)), strict=True))
    unit = {text: row / np.linalg.norm(row) for text, row in rows.items()}
    words = {forum.name: word_scores("word_overlap", forum.queries, forum.pool) for forum in forums}
    expected: dict[str, list[float]] = {"embeddings": [], "words": []}
    for forum in forums:
        for place, (query, known) in enumerate(zip(forum.queries, forum.duplicates, strict=True)):
            near = [float(unit[query] @ unit[other]) for other in forum.pool]
            for kind, scores in (("embeddings", near), ("words", words[forum.name][place])):
                hits = [other in known for other in np.argsort(-np.asarray(scores), kind="stable")[:100].tolist()]
                precisions = [sum(hits[: rank + 1]) / (rank + 1) for rank, hit in enumerate(hits) if hit]
                expected[kind].append(100 * float(np.mean(precisions)) if precisions else 0.0)
    embeddings = np.array(list(rows.values()))
    asked = np.array([text.startswith("which") for text in rows])[:, None]
    for given, scorer in ((embeddings, COSINE), (np.where(asked, -embeddings, embeddings), Turned())):
        assert task.score(given, scorer).items["map@100"].to_pylist() == pytest.approx(expected["embeddings"])
    assert task.score_words("word_overlap").items["map@100"].to_pylist() == pytest.approx(expected["words"])


class _Pairs:
    """A task whose score is the first number of the moved query."""

    def score(self, embeddings_SD: np.ndarray, scorer: RelationalScorer) -> TaskScore:
        (relation,) = scorer.scoring.by_name
        main = {"a": 10.0, "b": 30.0}[relation] * float(embeddings_SD[0, 0])
        return TaskScore(task="t", main=main, measures={"map": main}, items=pa.table({"map": [main]}))


def test_the_best_relation_of_a_task_counts_and_each_is_reported() -> None:
    scoring = RelationalScoring.model_validate({"weights": {"a": 1.0, "b": 1.0}, "combine": "best", "directions": "one"})
    scorer = RelationalScorer(relations=Relations(names=("a", "b"), vectors=np.eye(2, dtype=np.float32)), scoring=scoring)
    found = score_by(_Pairs(), np.ones((1, 2)), scorer)  # type: ignore[arg-type]
    assert found.main == 30.0 and found.measures == {"map": 30.0, "by.a": 10.0, "by.b": 30.0}
    with pytest.raises(ValueError, match="expected 1 of each"):
        RelationalScoring.model_validate({"weights": {"a": 1.0, "b": 0.5}, "combine": "best"})
    assert "combine" not in RelationalScoring.model_validate({"weights": {"a": 1.0}}).model_dump(exclude_defaults=True)


def _score(main: float | None, **by: float | None) -> TaskScore:
    return TaskScore(task="t", main=main, measures={f"by.{name}": value for name, value in by.items()}, items=pa.table({"map": [0.0]}))


def test_dev_tasks_of_a_group_count_as_one_and_share_a_relation() -> None:
    assert mean_of_parts([[_score(10.0)], [_score(20.0), _score(40.0)]]) == 20.0
    group = [_score(50.0, a=50.0, b=0.0), _score(60.0, a=20.0, b=60.0)]
    assert mean_of_parts([group]) == 35.0, "a is better over both: 35 against 30"
    assert mean_of_parts([[_score(None)], [_score(1.0)]]) is None
    assert mean_of_parts([[_score(10.0), _score(None)]]) is None, "a mean over fewer tasks would be another number"
    assert mean_of_parts([[_score(50.0, a=50.0, b=0.0), _score(60.0, a=None, b=60.0)]]) == 30.0, "a is not defined over both"


def test_useb_averages_its_four_tasks_each_by_one_relation() -> None:
    tasks = ("askubuntu", "cqadupstack", "twitter-url", "twitter-pit", "scidocs-cite", "scidocs-cocite", "scidocs-coview", "scidocs-coread")
    plain = useb_scores({task: float(10 * place) for place, task in enumerate(tasks)})
    assert tuple(plain) == COLUMNS or set(plain) == set(COLUMNS)
    assert (plain["TwitterPara Avg"], plain["SciDocs Avg"], plain["CR"], plain["CV"]) == (25.0, 55.0, 70.0, 60.0)
    assert plain["Avg"] == pytest.approx((0 + 10 + 25 + 55) / 4)
    by = {f"{task}.by.{name}": value for task in tasks for name, value in (("x", 10.0), ("y", 20.0))}
    by |= {"twitter-url.by.x": 90.0, "askubuntu.by.x": 30.0}
    found = useb_scores(by)
    assert (found["AskUbuntu"], found["CQADupStack"], found["TURL"], found["PIT"]) == (30.0, 20.0, 90.0, 10.0)
    assert useb_scores(by, "y")["Avg"] == 20.0 and useb_scores({"askubuntu": 1.0})["Avg"] is None
    found = useb_scores(by | {"twitter-pit.by.x": None})
    assert (found["TURL"], found["TwitterPara Avg"]) == (20.0, 20.0), "x is not defined over both, as great as it is over one"
