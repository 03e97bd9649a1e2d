"""Values that change a score: which sentences, which embeddings, which measure; dev scores come without dropout."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from scipy.stats import spearmanr

from sentdist.learning.checkpoint import DevScore
from sentdist.plan.specs import Task
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.stages.context import folder_of
from sentdist.stages.local import build_here
from sentdist.stages.scores.build import build_scores
from sentdist.stages.tasks.load import load_task
from sentdist.stages.tasks.sts import LoadedSts
from sentdist.stages.train import TrainSession
from tests.parity.wiring.fields import covers
from tests.parity.wiring.product import STILL, Place, opened, planned, stage_of
from tests.parity.wiring.reference import Student
from tests.parity.wiring.scoring import SLACK, base_scores, cosines_of, on_task, pairs_of, revision_of, scored, spearman_of
from tests.parity.wiring.training_cases import O
from tests.support.building import run_local
from tests.support.tasks_data import write_table

pytestmark = pytest.mark.parity
NOISY: dict[str, Json] = {
    "methods.m.regularizers": {"attention_dropout": 0.3, "hidden_dropout": 0.3}, "training.batch_size": 4, "training.epochs": 2,
    f"{O}.temperature": 0.05,
}  # fmt: skip


def watched_scores(
    place: Place, changes: Mapping[str, Json], *, family: str = "triplets"
) -> tuple[list[tuple[DevScore, Student]], TrainSession]:
    """Each dev score with the weights of that moment."""
    made = opened(place, family, changes)
    found = []
    for event in made.session.events():
        if isinstance(event, DevScore):
            student = Student(place.encoder, max_length=40)
            student.load({name.removeprefix("encoder.model."): tensor for name, tensor in made.session.engine.weights().items()})
            found.append((event, student))
    return found, made.session


@covers("Selection.task", "Selection.every_fraction", "Recipe.selection", "Train.selection", "Method.select", "Training.batch_size")
def test_dev_scores_are_those_of_the_weights_without_dropout(place: Place) -> None:
    rows = pairs_of(place, "dev")
    for every, steps in ((0.5, [1, 2, 3, 4]), (1.0, [2, 4])):
        found, session = watched_scores(place, {**NOISY, "selection": {"task": "stsb-dev", "every_fraction": every}})
        assert [event.step for event, _ in found] == steps
        assert [event.score for event, _ in found] == pytest.approx([spearman_of(student, rows) for _, student in found], abs=SLACK)
        best = max(found, key=lambda one: one[0].score)[0]
        assert (session.progress.best_step, session.progress.best_score) == (best.step, best.score)
        assert session.engine.learner.training
    chosen = {"selection": {"task": "stsb-dev", "every_fraction": 0.5}}
    plan, context = planned(place, "triplets", {**NOISY, **chosen, "training.learning_rate": 0.03, "training.epochs": 4})
    run_local(plan, context)
    stage = stage_of(plan)
    record = context.store.get(stage)
    assert record is not None and record.record.results["best_step"] is not None
    kept = spearman_of(Student(folder_of(stage, context), max_length=40), rows)
    assert kept == pytest.approx(record.record.results["best_dev_score"], abs=SLACK)
    left = stage_of(planned(place, "triplets", {**NOISY, **chosen, "methods.m.select": False})[0])
    assert left.selection is None


@covers("Selection.every_fraction")
@pytest.mark.parametrize(("rows", "every", "steps"), [(6, 0.67, [2, 3]), (8, 0.75, [4]), (8, 0.5, [2, 4])])
def test_dev_is_scored_each_interval_but_not_within_half_a_one_of_the_end(place: Place, rows: int, every: float, steps: list[int]) -> None:
    """Of three steps the second is half an interval of two away from the end, of four the third is nearer than half of three."""
    few: dict[str, Json] = {"corpus.limit": rows, "training.batch_size": 2, "training.epochs": 1}
    found, _ = watched_scores(place, {**few, "selection": {"task": "stsb-dev", "every_fraction": every}})
    assert [event.step for event, _ in found] == steps


@covers("Selection.view", "View.channels", "View.postprocess", "Selection.further_tasks", "Method.view", "Scores.view")
@pytest.mark.parametrize(
    "view",
    [{}, {"channels": [3, 11]}, {"postprocess": "center"}, {"postprocess": "whiten"}, {"channels": [4, 20], "postprocess": "center"}],
)
def test_views_choose_and_score_as_said(place: Place, view: dict[str, Any]) -> None:
    asked = {"channels": view.get("channels"), "after": view.get("postprocess", "none")}
    found, _ = watched_scores(
        place, {**NOISY, "training.epochs": 1, "selection": {"task": "stsb-dev", "every_fraction": 1.0, "view": view}}
    )
    slack = 1.0 if asked["after"] == "whiten" else SLACK  # the last of 32 directions holds float32's rounding
    for event, student in found:
        assert event.score == pytest.approx(spearman_of(student, pairs_of(place, "dev"), **asked), abs=slack)
    plan, context = planned(place, "triplets", {"methods": {"m": {"view": view}}, "evaluation.max_length": 40})
    (artifact,) = [build_here(stage, context) for stage in plan.stages]
    expected = spearman_of(Student(place.encoder, max_length=40), pairs_of(place, "test"), **asked, each_once=True)
    assert artifact.record.results["stsb"] == pytest.approx(expected, abs=slack)


@covers("Task.limit", "Selection.limit")
def test_a_limited_dev_task_asks_the_same_few_pairs_each_time(place: Place) -> None:
    rows = pairs_of(place, "dev")
    selection: dict[str, Json] = {"task": "stsb-dev", "every_fraction": 0.5, "limit": 12}
    found, session = watched_scores(place, {**NOISY, "selection": selection})
    (asked,) = session._dev.tasks
    assert isinstance(asked, LoadedSts)
    both = list(zip(asked.pairs.sentence1, asked.pairs.sentence2, strict=True))
    chosen = [row for row in rows if (row["sentence1"], row["sentence2"]) in both]
    assert len(chosen) == len(both) == 12 < len(rows)
    assert [event.score for event, _ in found] == pytest.approx([spearman_of(student, chosen) for _, student in found], abs=SLACK)
    _, again = watched_scores(place, {**NOISY, "seeds": [7], "selection": selection})
    assert again._dev.tasks[0].sentences == asked.sentences


@covers("Selection.further_tasks")
def test_several_dev_tasks_count_by_their_mean(place: Place) -> None:
    rows = [{**row, "split": "trial", "subset": "s"} for row in pairs_of(place, "dev")[::-3]]
    write_table(place.root / "triplets", "sts/sick", rows)
    found, _ = watched_scores(place, {**NOISY, "training.epochs": 1, "selection": {"task": "stsb-dev+sickr-dev", "every_fraction": 1.0}})
    for event, student in found:
        assert event.score == pytest.approx((spearman_of(student, pairs_of(place, "dev")) + spearman_of(student, rows)) / 2, abs=SLACK)


@covers(
    "View.relations", "RelationalScoring.weights", "RelationalScoring.directions", "RelationalScoring.normalized", "RelationalScoring.curve",
    "RelationWeight.relation", "RelationWeight.weight", "WeightGrid.relation", "WeightGrid.weights",
)  # fmt: skip
def test_scores_by_relations(place: Place) -> None:
    rows = pairs_of(place, "test", family="relations")
    training: dict[str, Json] = {O: {"name": "rse", "relation_learning_rate": 0.3}, "evaluation.max_length": 40}
    seen = set()
    for weights, directions, normalized in (
        ({"twin": 1.0}, "max_both", True), ({"entailment": 2.0}, "one", False), ({"entailment": 1.0, "twin": 3.0}, "one", True),
        ({"entailment": 1.0, "twin": 3.0}, "max_both", False),
    ):  # fmt: skip
        curve = (
            {"relation": "twin", "weights": [0.5, 4.0]}
            if len(weights) > 1
            else {"relation": "entailment" if "twin" in weights else "twin", "weights": [0.5, 2.0]}
        )
        view: Json = {"relations": {"weights": weights, "directions": directions, "normalized": normalized, "curve": curve}}
        plan, context = planned(place, "relations", {**training, "methods.m.view": view})
        artifact = run_local(plan, context)[-1]
        trained = stage_of(plan)
        student = Student(folder_of(trained, context), max_length=40)
        vectors = relations_in(folder_of(trained, context))
        score = {name: vectors[name] for name in vectors}
        said = relational(student, rows, score, weights, directions)
        scale = sum(weights.values()) if normalized else 1.0
        items = pq.read_table(context.store.folder(artifact) / "items/stsb.parquet")
        assert np.array(items["similarity"]) == pytest.approx(said / scale, abs=1e-4)
        gold = [row["score"] for row in rows]
        assert artifact.record.results["stsb"] == pytest.approx(100 * float(spearmanr(said, gold)[0]), abs=0.1)
        points = [
            100 * float(spearmanr(relational(student, rows, score, weights | {curve["relation"]: weight}, directions), gold)[0])
            for weight in curve["weights"]
        ]
        found = artifact.record.results["weight_curve"]
        assert isinstance(found, dict) and found["scores"] == pytest.approx(points, abs=0.2)
        seen.add(round(float(said[0] / scale), 5))
    assert len(seen) == 4


def relations_in(folder: Path) -> dict[str, np.ndarray]:
    from safetensors.torch import load_file

    table = load_file(folder / "heads.safetensors")["table.vectors.weight"].double().numpy()
    return dict(zip(("entailment", "twin"), table, strict=True))


def relational(
    student: Student, rows: Sequence[Mapping[str, Any]], vectors: Mapping[str, np.ndarray], weights: Mapping[str, Any], directions: str
) -> np.ndarray:
    """Σ w cos(h + r, t), or the greater of both directions."""
    with torch.no_grad():
        first, second = (np.stack([student.encode([row[name]])[0].numpy() for row in rows]) for name in ("sentence1", "sentence2"))
    forth = np.sum([weight * cosines_of(first + vectors[name], second) for name, weight in weights.items()], axis=0)
    back = np.sum([weight * cosines_of(second + vectors[name], first) for name, weight in weights.items()], axis=0)
    return np.asarray(forth if directions == "one" else np.maximum(forth, back))


@covers("Selection.view")
@pytest.mark.parametrize("reading", [{}, {"directions": "one", "normalized": False, "combine": "best"}])
def test_an_encoder_that_is_scored_by_relations_is_chosen_by_them(place: Place, reading: dict[str, Json]) -> None:
    """By the same reading of them, less its curve."""
    view: dict[str, Any] = {"relations": {"weights": {"twin": 1.0, "entailment": 1.0}, **reading}}
    curve: Json = {"relations": {**view["relations"], "curve": {"relation": "twin", "weights": [0.5, 1.0]}}}
    asked = {"methods.m.view": view if reading else curve}
    plan, _ = planned(place, "relations", {O: {"name": "rse"}, **asked, "selection": {"task": "stsb-dev"}})
    stage, scored_by = stage_of(plan), plan.trials[0].scores.view.relations
    assert stage.selection is not None and stage.selection.view.relations is not None and scored_by is not None
    assert stage.selection.view.relations == scored_by.model_copy(update={"curve": None})
    assert (scored_by.curve is None) is bool(reading)


@covers(
    "Scores.max_length",
    "Scores.precision",
    "Scores.tasks",
    "Scores.encoder",
    "EncoderSpec.pooling",
    "EncoderSpec.layers",
    "Recipe.evaluation",
)
def test_evaluations_encode_as_said(place: Place) -> None:
    rows = pairs_of(place, "test")
    whole = spearman_of(Student(place.encoder, max_length=40), rows)
    expected = {"whole": (base_scores(place), whole)}
    expected["short"] = base_scores(place, evaluation_at_max_length=7), spearman_of(Student(place.encoder, max_length=7), rows)
    for pooling in ("cls", "first_last", "cls_last_five"):
        stage = base_scores(place, encoder_at_pooling=pooling)
        expected[pooling] = stage, spearman_of(Student(place.encoder, max_length=40, pooling=pooling), rows)
    expected["layers"] = base_scores(place, encoder_at_layers=1), spearman_of(Student(place.encoder, max_length=40, layers=1), rows)
    expected["other"] = base_scores(place, encoder_at_checkpoint=str(place.deeper)), spearman_of(Student(place.deeper, max_length=40), rows)
    found = {}
    for name, (stage, said) in expected.items():
        if name == "other":
            _, context = planned(place, "triplets", {"methods": {"m": {}}, "encoder.checkpoint": str(place.deeper)})
            found[name] = build_scores(stage, context).record.results["stsb"]
        else:
            found[name] = scored(place, stage)["stsb"]
        assert found[name] == pytest.approx(said, abs=SLACK), name
    assert len(set(found.values())) == len(found)
    kinds = []
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, given, out: kinds.append(out.dtype) if isinstance(module, torch.nn.Linear) else None
    )
    scored(place, base_scores(place, evaluation_at_precision="bf16"))
    hook.remove()
    assert set(kinds) == {torch.bfloat16}


@covers("Task.aggregation", "Task.split", "Task.source", "Task.kind")
def test_subsets_are_put_together_as_said(place: Place) -> None:
    rows = [{**row, "subset": "ab"[number % 3 == 0], "split": "test"} for number, row in enumerate(pairs_of(place, "test"))]
    write_table(place.root / "triplets", "my/parts", rows)
    task = Task(
        name="mine",
        kind="sts",
        source="my/parts",
        revision=revision_of(place, "my/parts"),
        split="test",
    )
    parts = [[row for row in rows if row["subset"] == name] for name in "ab"]
    student = Student(place.encoder, max_length=40)
    scores = [spearman_of(student, part) for part in parts]
    said = {
        "all": spearman_of(student, rows),
        "mean": sum(scores) / 2,
        "wmean": sum(score * len(part) for score, part in zip(scores, parts, strict=True)) / len(rows),
    }
    base = base_scores(place)
    for aggregation, expected in said.items():
        changed = on_task(base, task.model_copy(update={"aggregation": aggregation}))
        assert scored(place, changed)["mine"] == pytest.approx(expected, abs=SLACK)
    assert len({round(value, 2) for value in said.values()}) == 3


def test_geometry_is_that_of_sts_b_wherever_it_stands_among_the_tasks(place: Place, tmp_path: Path) -> None:
    """Each sentence once; pairs graded above 4 mean the same."""
    rows = [{**row, "score": min(5.0, row["score"] + 1.5)} for row in pairs_of(place, "test")]
    rows[0]["score"] = 4.0  # not above
    elsewhere = replace(place, root=tmp_path, store=tmp_path / "store")
    shutil.copytree(place.root / "triplets", tmp_path / "triplets")
    write_table(tmp_path / "triplets", "sts/stsb", rows)
    write_table(tmp_path / "triplets", "sts/sick", [{**row, "split": "test", "subset": "s"} for row in pairs_of(place, "dev")])
    asked: dict[str, Json] = {"methods": {"m": {}}, "evaluation.tasks": ["sickr", "stsb"], "evaluation.max_length": 40}
    plan, context = planned(elsewhere, "triplets", asked)
    (artifact,) = run_local(plan, context)
    student = Student(place.encoder, max_length=40)
    texts = dict.fromkeys(row[name] for row in rows for name in ("sentence1", "sentence2"))
    with torch.no_grad():
        unit = {text: torch.nn.functional.normalize(student.encode([text]))[0] for text in texts}
    same = [float((unit[row["sentence1"]] - unit[row["sentence2"]]).square().sum()) for row in rows if row["score"] > 4]
    assert same and any(3 < row["score"] < 4 for row in rows)
    apart = torch.pdist(torch.stack(list(unit.values())))
    results = artifact.record.results
    assert results["geometry.task"] == "stsb"
    assert results["geometry.alignment"] == pytest.approx(float(np.mean(same)), rel=1e-4)
    assert results["geometry.uniformity"] == pytest.approx(float((-2 * apart.square()).exp().mean().log()), rel=1e-4)


@covers("LexicalSpec.name", "Method.lexical", "Method.of")
def test_rows_without_an_encoder_and_other_readings(place: Place) -> None:
    plan, context = planned(
        place, "triplets", {"methods.words": {"lexical": "word_overlap"}, "methods.part": {"of": "m", "view": {"channels": [0, 8]}}}
    )
    results = {trial.method: trial.scores for trial in plan.trials}
    rows = pairs_of(place, "test")
    shared = [len(a & b) / len(a | b) for row in rows for a, b in [(set(row["sentence1"].split()), set(row["sentence2"].split()))]]
    words = build_scores(results["words"], context).record.results["stsb"]
    assert words == pytest.approx(100 * float(spearmanr(shared, [row["score"] for row in rows])[0]), abs=1e-6)
    assert isinstance(results["part"].encoder, Train) and results["part"].encoder.key == results["m"].encoder.key
    ranked = {kind: score_words(place, kind) for kind in ("bm25", "word_overlap")}
    assert ranked["bm25"] != ranked["word_overlap"]


def score_words(place: Place, kind: Any) -> tuple[float, ...]:
    _, context = planned(place, "triplets", {})
    task = Task(name="faq", kind="retrieval", source="generated/faq", revision="any")
    measures = load_task(task, context.data_root).score_words(kind).measures
    return tuple(measures.values())


@covers("Probes.channels", "Probes.num_sentences", "Probes.num_words", "Probes.seed", "Scores.probes", "Scores.targets")
def test_probes_look_where_they_are_sent(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentdist.stages.scores import build as probing

    seen: list[tuple[tuple[int, ...], tuple[int, ...], int, bytes]] = []
    real = probing.probe_regression

    def watched(channels: np.ndarray, words: np.ndarray, *, seed: int) -> Any:
        seen.append((channels.shape, words.shape, seed, channels[:, :3].tobytes()))
        return real(channels, words, seed=seed)

    real_tags, seeds = probing.probe_distribution, list[int]()

    def watched_tags(channels: np.ndarray, shares: np.ndarray, *, seed: int) -> Any:
        seeds.append(seed)
        return real_tags(channels, shares, seed=seed)

    monkeypatch.setattr(probing, "probe_regression", watched)
    monkeypatch.setattr(probing, "probe_distribution", watched_tags)
    tagger: dict[str, Json] = {"targets": {"tagger": "tests.support.tiny_tagger:tag", "num_words": 12}}
    for probes, shapes, words, seed in (
        ({"num_sentences": 20}, [(20, 5), (20, 27)], 12, 0),
        ({"num_sentences": 24, "channels": [8, 24], "num_words": 4}, [(24, 8), (24, 24)], 4, 0),
        ({"num_sentences": 20, "seed": 3}, [(20, 5), (20, 27)], 12, 3),
    ):
        plan, context = planned(place, "triplets", {**tagger, "evaluation.probes": probes, "methods.m.regularizers": STILL})
        run_local(plan, context)
        one, other = seen[-2:]
        assert [one[0], other[0]] == shapes and one[1] == (shapes[0][0], words) and one[2] == seed and seeds[-2:] == [seed, seed]
    assert seen[0][3] != seen[4][3]  # other sentences
