"""Values of the papers' benchmarks that change a score: forums, the best of several relations, dev tasks in parts, dev accuracies."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

from sentdist.plan.task_kinds import ClassificationTask, ForumsTask
from sentdist.stages.context import folder_of
from sentdist.stages.tasks import classification
from tests.parity.wiring.fields import covers
from tests.parity.wiring.product import Place, planned, stage_of
from tests.parity.wiring.reference import Student
from tests.parity.wiring.scoring import SLACK, base_scores, cosines_of, on_task, pairs_of, revision_of, scored
from tests.parity.wiring.test_recipe_to_score import NOISY, relational, relations_in, watched_scores
from tests.parity.wiring.training_cases import O
from tests.support.building import run_local
from tests.support.tasks_data import write_table

pytestmark = pytest.mark.parity


@covers("ForumsTask.source", "ForumsTask.split")
def test_forums_are_ranked_each_for_itself(place: Place) -> None:
    texts = list(dict.fromkeys(row["sentence1"] for row in pairs_of(place, "test")))[:24]
    forums = {"a": {str(n): texts[n] for n in range(14)}, "b": {str(n): texts[14 + n] for n in range(10)}}
    asked = {"valid": {"a": {"1": ["2", "5"]}, "b": {"3": ["4"]}}, "test": {"a": {"0": ["3"], "6": ["7", "2"]}, "b": {"1": ["9"]}}}
    for name, judged in (("one", asked), ("two", {part: {"b": {"0": ["2"]}} for part in asked})):
        folder = place.root / "triplets/my" / name
        folder.mkdir(parents=True)
        (folder / "corpus.json").write_text(json.dumps(forums))
        (folder / "retrieval_split.json").write_text(json.dumps(judged))
    student, found = Student(place.encoder, max_length=40), set()
    for source, split, judged in (("one", "valid", asked["valid"]), ("one", "test", asked["test"]), ("two", "test", {"b": {"0": ["2"]}})):
        means = []
        for forum, queries in judged.items():
            pool = [key for key in forums[forum] if key not in queries]
            values = []
            for query, duplicates in queries.items():
                with torch.no_grad():
                    both = student.encode([forums[forum][query], *(forums[forum][key] for key in pool)]).numpy()
                cosines = cosines_of(both[:1], both[1:])
                values.append(100 * average_precision_score([key in duplicates for key in pool], cosines))
            means.append(np.mean(values))
        task = ForumsTask(name="t", source=f"my/{source}", revision=revision_of(place, f"my/{source}"), split=split)
        said = scored(place, on_task(base_scores(place), task))["t"]
        assert said == pytest.approx(float(np.mean(means)), abs=1e-6)
        found.add(said)
    assert len(found) == 3


@covers("RelationalScoring.combine")
def test_the_best_relation_counts(place: Place) -> None:
    rows = pairs_of(place, "test", family="relations")
    view = {"relations": {"weights": {"entailment": 1.0, "twin": 1.0}, "directions": "one", "combine": "best"}}
    values: dict[str, Any] = {O: {"name": "rse", "relation_learning_rate": 0.3}, "evaluation.max_length": 40, "methods.m.view": view}
    plan, context = planned(place, "relations", values)
    results = run_local(plan, context)[-1].record.results
    folder = folder_of(stage_of(plan), context)
    student, vectors, gold = Student(folder, max_length=40), relations_in(folder), [row["score"] for row in rows]
    alone = {name: 100 * float(spearmanr(relational(student, rows, vectors, {name: 1.0}, "one"), gold)[0]) for name in vectors}
    assert {name: results[f"stsb.by.{name}"] for name in alone} == pytest.approx(alone, abs=SLACK)
    assert results["stsb"] == pytest.approx(max(alone.values()), abs=SLACK) and len(set(alone.values())) == 2


@covers("Selection.parts")
def test_a_group_of_dev_tasks_counts_as_one(place: Place) -> None:
    pairs = [row for row in pairs_of(place, "dev") if row["sentence1"] != row["sentence2"]]
    parts = [
        [(row["sentence1"], row["sentence2"], int((number + turn) % (3 + turn) == 0)) for number, row in enumerate(pairs)]
        for turn in range(3)
    ]
    root = place.root / "triplets"
    write_table(root, "pairs/qqp", [{"sentence1": a, "sentence2": b, "label": label, "split": "test"} for a, b, label in parts[0]])
    (root / "pairs/Twitter_URL_Corpus_test.txt").write_text("".join(f"{a}\t{b}\t({6 * label}, 6)\tu\n" for a, b, label in parts[1]))
    (root / "pairs/test.data").write_text("".join(f"1\tt\t{a}\t{b}\t{5 * label}\tx\ty\n" for a, b, label in parts[2]))
    found, _ = watched_scores(place, {**NOISY, "training.epochs": 1, "selection": {"task": "qqp-pairs+twitter", "every_fraction": 1.0}})
    assert found
    for event, student in found:
        aps = []
        for part in parts:
            with torch.no_grad():
                first, second = (student.encode([row[side] for row in part]).numpy() for side in (0, 1))
            aps.append(100 * average_precision_score([row[2] for row in part], cosines_of(first, second)))
        assert event.score == pytest.approx((aps[0] + (aps[1] + aps[2]) / 2) / 2, abs=0.5), "float32 puts neighbours the other way round"
        assert len({round(one, 3) for one in aps}) == 3


@covers("ClassificationTask.role")
def test_a_dev_accuracy_is_asked_of_train_and_dev_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"text": row["sentence1"], "label": str(n % 2), "split": ("train", "test", "dev")[n % 3]}
        for n, row in enumerate(pairs_of(place, "test"))
    ]
    write_table(place.root / "triplets", "my/parts", rows)
    seen: list[dict[str, Any]] = []

    def watched(features: np.ndarray, labels: object, **given: Any) -> float:
        seen.append(given)
        return 61.0

    monkeypatch.setattr(classification, "senteval_dev", watched)
    values = {
        "name": "t",
        "source": "my/parts",
        "revision": revision_of(place, "my/parts"),
        "split": "test",
        "dev": "dev",
        "classifier": "senteval",
        "num_folds": 4,
    }
    task = ClassificationTask.model_validate(values | {"role": "dev"})
    assert scored(place, on_task(base_scores(place), task))["t"] == 61.0
    (given,) = seen
    splits = [row["split"] for row in rows]
    assert (
        given["num_folds"] == 4
        and {splits[row] for row in given["train"]} == {"train"}
        and {splits[row] for row in given["dev"]} == {"dev"}
    )
    assert scored(place, on_task(base_scores(place), ClassificationTask.model_validate(values)))["t"] != 61.0 and len(seen) == 1
