"""Values of tasks that change a score: columns, labels, splits, folds, runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import average_precision_score, v_measure_score

from sentdist.plan.task_kinds import ClusteringTask, GeometryTask, ParaphraseTask, RerankingTask, TripletTask
from tests.parity.wiring.product import Place
from tests.parity.wiring.reference import Student
from tests.parity.wiring.scoring import base_scores, cosines_of, on_task, pairs_of, revision_of, scored
from tests.support.tasks_data import write_table

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def labelled(place: Place) -> list[dict[str, Any]]:
    """Texts in pairs and triplets, with labels, under other names than the usual too."""
    rows = []
    texts = [row["sentence1"] for row in pairs_of(place, "test")] + [row["sentence2"] for row in pairs_of(place, "dev")]
    for number in range(36):
        one, other, third = texts[number], texts[(number * 7 + 3) % 60], texts[(number * 5 + 11) % 60]
        rows.append({
            "split": ("train", "test", "dev")[number % 3], "text": one, "text2": other, "third": third, "sentence1": one, "sentence2": other,
            "sent0": one, "sent1": other, "hard_neg": third, "label": str(number // 3 % 2), "label2": str((number // 3 + number % 5) % 2),
            "query_id": f"q{number // 4}", "query": texts[number // 4], "document_id": f"d{number}", "document": other,
            "relevance": number % 4 == 1 or number % 7 == 0, "head": f"x {texts[number // 4]}", "body": third,
        })  # fmt: skip
    for row in rows:
        row["relevance"] = int(row["relevance"])
    write_table(place.root / "triplets", "my/rows", rows)
    return rows


def test_tasks_read_and_score_what_their_values_say(place: Place, labelled: list[dict[str, Any]]) -> None:
    student = Student(place.encoder, max_length=40)
    base, where = base_scores(place), {"name": "t", "source": "my/rows", "revision": revision_of(place, "my/rows")}

    def score(task: Any, measure: str = "t") -> Any:
        return scored(place, on_task(base, task))[measure]

    def embedded(rows: Sequence[Mapping[str, Any]], *names: str) -> np.ndarray:
        with torch.no_grad():
            return np.asarray(student.encode([" ".join(row[name] for name in names) for row in rows]).numpy())

    runs_of: dict[tuple[str | None, str, int], float] = {}
    for split in (None, "test"):
        rows = [row for row in labelled if split is None or row["split"] == split]
        for one, other, label in (("sentence1", "sentence2", "label"), ("text", "third", "label2")):
            said = average_precision_score([int(row[label]) for row in rows], cosines_of(embedded(rows, one), embedded(rows, other)))
            found = score(ParaphraseTask.model_validate({**where, "columns": (one, other), "label": label, "split": split}))
            assert found == pytest.approx(100 * said, abs=1e-3)
        for columns in (("sent0", "sent1", "hard_neg"), ("hard_neg", "sent0", "sent1")):
            anchors, near, far = (embedded(rows, name) for name in columns)
            said = 100 * float((cosines_of(anchors, near) > cosines_of(anchors, far)).mean())
            assert score(TripletTask.model_validate({**where, "columns": columns, "split": split})) == pytest.approx(said)
        for text, label, num_runs in (("text", "label", 5), ("text2", "label2", 5), ("text2", "label2", 1)):
            unit = embedded(rows, text) / np.linalg.norm(embedded(rows, text), axis=1, keepdims=True)
            runs = [KMeans(n_clusters=2, n_init=1, random_state=seed).fit_predict(unit) for seed in range(num_runs)]
            said = 100 * float(np.mean([v_measure_score([row[label] for row in rows], run) for run in runs]))
            found = score(ClusteringTask.model_validate({**where, "text": text, "label": label, "num_runs": num_runs, "split": split}))
            assert found == pytest.approx(said, abs=0.05)
            runs_of[split, text, num_runs] = said
        for query, document in ((("query",), ("document",)), (("head", "query"), ("body", "document"))):
            alike = cosines_of(embedded(rows, *query), embedded(rows, *document))
            said = 100 * float(np.mean(list(average_precisions(rows, alike))))
            found = score(RerankingTask.model_validate({**where, "query": query, "document": document, "split": split}))
            assert found == pytest.approx(said, abs=1e-3)
    assert any(abs(runs_of[split, "text2", 5] - runs_of[split, "text2", 1]) > 0.1 for split in (None, "test"))
    for split, above in (("test", 3.0), ("test", 1.0), ("dev", 1.0)):
        rows = [row for row in pairs_of(place, split) if row["score"] > above]
        first, second = (
            embedded(rows, name) / np.linalg.norm(embedded(rows, name), axis=1, keepdims=True) for name in ("sentence1", "sentence2")
        )
        task = GeometryTask(name="t", source="sts/stsb", revision=revision_of(place, "sts/stsb"), split=split, positive_above=above)
        assert score(task, "t.alignment") == pytest.approx(float(((first - second) ** 2).sum(1).mean()), abs=1e-4)


def average_precisions(rows: Sequence[Mapping[str, Any]], alike: np.ndarray) -> Any:
    for query in dict.fromkeys(row["query_id"] for row in rows):
        places = [number for number, row in enumerate(rows) if row["query_id"] == query]
        ranked = [rows[number]["relevance"] for number in sorted(places, key=lambda number: -alike[number])]
        if sum(ranked) > 0:
            hits = [sum(ranked[: place + 1]) / (place + 1) for place, right in enumerate(ranked) if right]
            yield sum(hits) / len(hits)
