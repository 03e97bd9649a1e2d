"""Overlaps as stages: what is compared with what, what is recorded, and what reports and the command say of it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.data.folds import Role, queries_for
from sentdist.plan.leaks import overlaps_of
from sentdist.plan.specs import Fold, Task
from sentdist.plan.stage import Json
from sentdist.plan.unroll import Plan
from sentdist.report.brief_table import brief_table
from sentdist.report.leaks import sweep_leaks
from sentdist.report.sweep_report import report_sweep
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.overlaps import build_overlaps
from sentdist.store.sweep import load_sweep
from tests.support.synthetic_sweeps import fill_store
from tests.support.tasks_data import write_table
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

ON_ITS_TEST: dict[str, Json] = {"source": "sts/stsb", "split": "test", "columns": ["sentence1", "sentence2"]}


def _world(folder: Path, encoder: Path, *, corpus: Json = ON_ITS_TEST) -> tuple[Plan, Context]:
    """A sweep that trains on its own test set."""
    values = tiny_values(encoder, corpus=corpus, seeds=[0, 1])
    plan, context = tiny_plan(values, data=write_data(folder / "data"), store=folder / "store")
    for overlap in overlaps_of(plan):
        for needed in overlap.inputs:
            build_here(needed, context)
    fill_store(context.store, plan, noise=lambda trial: 1.0, num_items={"stsb": 40})
    return plan, context


def test_every_corpus_and_dev_set_is_compared_once(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = _world(tmp_path, tiny_encoder_dir)
    overlaps = overlaps_of(plan)
    assert [overlap.label for overlap in overlaps] == ["sts-stsb", "stsb-dev"], "six trainings share one corpus and one dev set"
    assert [len(overlap.inputs) for overlap in overlaps] == [1, 0]
    own, dev = build_overlaps(plan, context)
    counts = own.record.results["tasks"]
    assert isinstance(counts, dict) and counts["stsb"] == {
        "items": 40,
        "exact": 40,
        "normalised": 40,
        "near": 40,
        "sentences": 40,
        "one": 0,
    }
    assert dev.record.results["tasks"]["stsb"]["exact"] < 40  # type: ignore[index, call-overload, operator]
    assert build_overlaps(plan, context)[0].record == own.record, "the store knows it"


def test_a_report_marks_scores_on_what_was_trained_on(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = _world(tmp_path, tiny_encoder_dir)
    build_overlaps(plan, context)
    report = report_sweep(context.store, "tiny")
    lines = {line.split("|")[1].strip(): line for line in report.markdown.split("## Chosen")[0].splitlines() if line.startswith("| ")}
    assert "**leaked 40 of 40**" in lines["fine_tuned"] and "leaked" not in lines["base"]
    assert "| sts-stsb | stsb | 40 | 40 | 40 | 40 | 40 | 0 |" in report.markdown and "stsb-dev (chooses weights)" in report.markdown
    sweep = load_sweep(context.store, "tiny")
    records = sweep.records(context.store)
    brief = brief_table(sweep, records, leaked=sweep_leaks(sweep, context.store, records).leaked)
    marked = {row[0] for row in brief.rows for cell in row if cell.endswith(", leaked 40 of 40")}
    assert "fine_tuned" in marked and "base" not in marked
    header, *rows = list(csv.reader(str(report.files["table1.csv"]).splitlines()))
    leaked = {row[0]: row[header.index("STS-B items leaked")] for row in rows}
    assert leaked["fine_tuned"] == "40" and leaked["base"] == ""


def test_leaks_of_all_folds_count_together(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """Of twelve queries each is tested in one fold; those with a twin in another fold were trained on."""
    data = write_data(tmp_path / "data")
    write_table(data, "my/faq_docs", [{"doc_id": f"d{number}", "text": f"the answer number {number}", "title": ""} for number in range(6)])
    write_table(data, "my/faq_queries", [{"query_id": f"q{row}", "query": f"what is number {row % 6}"} for row in range(12)])
    write_table(data, "my/faq_qrels", [{"query_id": f"q{row}", "doc_id": f"d{row % 6}", "relevance": 1} for row in range(12)])
    task = "retrieval=my/faq"
    values = tiny_values(
        tiny_encoder_dir, corpus={"source": "my/faq", "split": None}, folds={"num": 3}, selection=None, evaluation={"tasks": [task]},
        training={"batch_size": 2, "max_length": 20}, methods={"base": {}, "fine_tuned": {"objective": {"name": "info_nce"}}},
    )  # fmt: skip
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    for overlap in overlaps_of(plan):
        for needed in overlap.inputs:
            build_here(needed, context)
    name = plan.trials[0].scores.tasks[0].name
    fill_store(context.store, plan, noise=lambda trial: 1.0, num_items={name: 4})
    for overlap, made in zip(overlaps_of(plan), build_overlaps(plan, context), strict=True):
        (task,) = overlap.tasks
        assert isinstance(task, Task) and task.fold is not None
        asked = {role: _asked(task.fold, role) for role in get_args(Role)}
        results: Any = made.record.results["tasks"]
        counts = results[task.name]
        assert counts["items"] == 4 and counts["exact"] == sum(text in asked["train"] for text in asked["test"]), "of this fold's own test"
    report = report_sweep(context.store, "tiny")
    (line,) = [line for line in report.markdown.split("## Leaks")[0].splitlines() if line.startswith("| fine_tuned")]
    exact = [int(row.split("|")[4]) for row in report.markdown.split("## Leaks")[1].splitlines() if f"| {name} |" in row]
    assert len(exact) == 3 and sum(exact) > max(exact) > 0
    assert f"**leaked {sum(exact)} of 12**" in line


def _asked(fold: Fold, role: Role) -> list[int]:
    """The number that each query of a role asks for."""
    queries = [f"q{row}" for row in range(12)]
    chosen = queries_for(queries, fold=fold.number, num_folds=fold.num_folds, seed=fold.seed, role=role)
    return [int(query[1:]) % 6 for query in chosen]


def test_the_command_counts_and_writes_the_items(tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(tiny_values(tiny_encoder_dir, corpus=ON_ITS_TEST), sort_keys=False))
    data = write_data(tmp_path / "data")
    done = CliRunner().invoke(app, ["leaks", str(recipe), "--data", str(data), "--store", str(tmp_path / "store"), "--out", "found.csv"])
    assert done.exit_code == 0, done.output
    assert "sts-stsb" in done.output and "found.csv" in done.output
    rows = list(csv.DictReader((tmp_path / "found.csv").read_text().splitlines()))
    own = [row for row in rows if row["training data"] == "sts-stsb"]
    assert len(own) == 40 and {row["level"] for row in own} == {"exact"} and own[0]["one"] == own[0]["train_one"]
