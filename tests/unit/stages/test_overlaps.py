"""Overlaps as stages: what is compared with what, what is recorded, and what reports and the command say of it."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.data.leaks import CHANGED, LeakFinder, Level
from sentdist.data.retrieval import Role, queries_for
from sentdist.errors import StoreError
from sentdist.plan.corpora.relations import LinkTask
from sentdist.plan.evaluation import overlaps_of
from sentdist.plan.specs import Fold, Task
from sentdist.plan.stage import Json
from sentdist.plan.stages import Overlap, Train
from sentdist.plan.unroll import Plan
from sentdist.report import encoder_card as encoder_card_module
from sentdist.report.encoder_card import encoder_card
from sentdist.report.leaks import LEAKS_HEADER, LEAKS_NOTE, LEVEL_TITLES, NOT_CHECKED, Leaked, SweepLeaks, sweep_leaks
from sentdist.report.sweep_report import report_sweep
from sentdist.report.tables import brief_table
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.tasks.load import load_task
from sentdist.stages.text_stages import build_overlaps
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import load_sweep
from tests.support.relations_data import relations_values, write_relations_data
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


def test_an_overlap_waits_for_its_corpus(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    assert [artifact.record.label for artifact in build_overlaps(plan, context)] == ["stsb-dev"]


def test_a_report_marks_scores_on_what_was_trained_on(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = _world(tmp_path, tiny_encoder_dir)
    assert NOT_CHECKED in report_sweep(context.store, "tiny").markdown
    build_overlaps(plan, context)
    report = report_sweep(context.store, "tiny")
    lines = {line.split("|")[1].strip(): line for line in report.markdown.split("## Chosen")[0].splitlines() if line.startswith("| ")}
    assert "**leaked 40 of 40**" in lines["fine_tuned"] and "leaked" not in lines["base"]
    assert '<span class="leaked">leaked 40 of 40</span>' in report.html
    assert "| sts-stsb | stsb | 40 | 40 | 40 | 40 | 40 | 0 |" in report.markdown and "stsb-dev (chooses weights)" in report.markdown
    assert NOT_CHECKED not in report.markdown
    sweep = load_sweep(context.store, "tiny")
    records = sweep.records(context.store)
    brief = brief_table(sweep, records, leaked=sweep_leaks(sweep, context.store, records).leaked)
    marked = {row[0] for row in brief.rows for cell in row if cell.endswith(", leaked 40 of 40")}
    assert "fine_tuned" in marked and "base" not in marked
    header, *rows = list(csv.reader(str(report.files["table1.csv"]).splitlines()))
    leaked = {row[0]: row[header.index("STS-B items leaked")] for row in rows}
    assert leaked["fine_tuned"] == "40" and leaked["base"] == ""


def test_a_card_tells_what_its_own_corpora_hold(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = _world(tmp_path, tiny_encoder_dir)
    build_overlaps(plan, context)
    (trained, *_) = (trial.scores.encoder for trial in plan.trials if isinstance(trial.scores.encoder, Train))
    artifact = context.store.get(trained)
    assert artifact is not None
    card = encoder_card(context.store, artifact, name="me/encoder", licence=None, language=(), has_unit_length=False)
    assert "| sts-stsb | stsb | 40 | 40 |" in card and "chooses weights" not in card


def test_a_card_has_its_own_corpora_and_the_scores_of_compared_tasks_alone(
    tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has another training, on other data, and what a geometry is has no test."""
    data = write_data(tmp_path / "data")
    write_table(data, "my/others", [{"one": f"a dog of {number}", "other": f"{number} years"} for number in range(60)])
    for name, corpus in (("one", {"source": "nli/triplets"}), ("two", {"source": "my/others", "columns": ["one", "other"]})):
        tasks: Json = ["stsb", "geometry-stsb"]
        values = tiny_values(tiny_encoder_dir, name=name, corpus=corpus, evaluation={"tasks": tasks})  # type: ignore[arg-type]
        plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
        fill_store(context.store, plan, noise=lambda trial: 1.0, num_items={"stsb": 40, "geometry-stsb": 40})
    found = SimpleNamespace(sizes={"stsb": (40, 20)}, interval=lambda task, label: None)
    for trial in plan.trials:
        if isinstance(trial.scores.encoder, Train) and not trial.scores.encoder.banks:
            trained = context.store.get(trial.scores.encoder)
            assert trained is not None
            card = encoder_card(context.store, trained, name="me/encoder", licence=None, language=(), has_unit_length=False)
            with monkeypatch.context() as grouped:
                grouped.setattr(encoder_card_module, "table_columns", lambda *_, **__: found)
                in_pairs = encoder_card(context.store, trained, name="me/encoder", licence=None, language=(), has_unit_length=False)
            (row,) = (line for line in in_pairs.splitlines() if line.startswith("| stsb |"))
            (base,) = {trial.scores for trial in plan.trials if not isinstance(trial.scores.encoder, Train)}
            untouched = context.store.get(base)
            assert untouched is not None and row.split("|")[-3].strip() == f"{untouched.record.results['stsb']:.2f}"
            assert row.split("|")[-2].strip() == "40", "items, also where some belong together"
            assert "my-others" in card and "nli-triplets" not in card and "| stsb | " in card and "| geometry" not in card


def test_near_finds_are_marked_too(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    """One test pair stands in a row but for a word behind it."""
    corpus: Json = {"source": "nli/triplets", "columns": ["sent0", "hard_neg"]}
    plan, context = _world(tmp_path, tiny_encoder_dir, corpus=corpus)
    build_overlaps(plan, context)
    report = report_sweep(context.store, "tiny")
    lines = {line.split("|")[1].strip(): line for line in report.markdown.split("## Chosen")[0].splitlines() if line.startswith("| ")}
    assert "**leaked 1 nearly of 40**" in lines["fine_tuned"] and "leaked" not in lines["base"]
    assert "| nli-triplets | stsb | 40 | 0 | 0 | 1 |" in report.markdown


def test_a_cell_is_held_against_all_that_its_training_builds_on(
    tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`second` goes on from a training on the test set, but for case, and its own corpus has one pair of it but for a word."""
    data = write_data(tmp_path / "data")
    write_table(
        data, "loud/stsb", [row | {"sentence1": row["sentence1"].upper()} for row in pq.read_table(data / "sts/stsb.parquet").to_pylist()]
    )
    trained: Json = {"objective": {"name": "info_nce"}}
    nearly: dict[str, Json] = {"corpus": {"source": "nli/triplets", "columns": ["sent0", "hard_neg"]}, "baseline": "plain"}
    alone = tiny_values(tiny_encoder_dir, methods={"plain": trained}, **nearly)
    first: Json = {"objective": {"name": "info_nce"}, "corpus": "loud", "reported": False}
    methods: Json = {"first": first, "second": {"objective": {"name": "info_nce"}, "start": "first"}, "plain": trained}
    whole = alone | {"methods": methods, "corpora": {"loud": {**ON_ITS_TEST, "source": "loud/stsb"}}}
    own, elsewhere, (plan, context) = (
        tiny_plan(values, data=data, store=tmp_path / "store")
        for values in (alone, alone | {"evaluation": {"tasks": ["sts=sts/stsb@dev"]}}, whole)
    )
    for overlap in overlaps_of(plan):
        for needed in overlap.inputs:
            build_here(needed, context)
    fill_store(context.store, plan, noise=lambda trial: 1.0, num_items={"stsb": 40})
    sweep = load_sweep(context.store, "tiny")

    def found() -> SweepLeaks:
        return sweep_leaks(sweep, context.store, sweep.records(context.store))

    with monkeypatch.context() as older:
        older.setattr(Overlap, "revision", Overlap.revision - 1)
        build_overlaps(plan, context)
    for other, _ in (own, elsewhere):
        build_overlaps(other, context)
    nearly_one = Leaked(num_leaked=0, num_near=1, num_items=40)
    assert found().leaked == {("second", "stsb"): nearly_one, ("plain", "stsb"): nearly_one} and not found().is_known
    build_overlaps(plan, context)
    assert found().leaked == {("second", "stsb"): Leaked(num_leaked=40, num_items=40), ("plain", "stsb"): nearly_one}
    assert found().is_known and {row[:2] for row in found().rows} == {
        ("loud-stsb", "stsb"), ("nli-triplets", "stsb"), ("stsb-dev (chooses weights)", "stsb"),
    }  # fmt: skip


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


def test_links_have_the_texts_of_their_answers(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = tiny_plan(relations_values(tiny_encoder_dir), data=write_relations_data(tmp_path / "data"), store=tmp_path / "store")
    links = next(task for task in plan.trials[0].scores.tasks if isinstance(task, LinkTask))
    texts = load_task(links, context.data_root).texts()
    assert texts.num_items == len(texts.pairs) > 0 and all(len(both) == 2 for both in texts.sentences)
    ids: dict[str, int] = {}
    rows = np.array([[ids.setdefault(text, len(ids)) for text in pair[1:]] for pair in texts.pairs]).T
    (leaks,) = LeakFinder([texts]).find([list(ids)], rows)
    assert leaks.count("exact") == texts.num_items


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


def test_the_items_of_a_changed_recipe_stand_under_the_names_that_its_table_has(
    tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of training rows that a blank and a capital tell from the test's, and that only --set brings in."""
    data = write_data(tmp_path / "data")
    pairs = pq.read_table(data / "sts/stsb.parquet").to_pylist()
    rows = [{"one": f" {one['sentence1'].upper()}", "other": one["sentence2"]} for one in pairs if one["split"] == "test"]
    write_table(data, "my/rows", rows)
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(tiny_values(tiny_encoder_dir), sort_keys=False))
    asked = ["leaks", str(recipe), "--data", str(data), "--store", str(tmp_path / "store"), "--set", "corpus.source=my/rows"]
    done = CliRunner().invoke(app, [*asked, "--set", "corpus.columns=[one, other]"])
    assert done.exit_code == 0, done.output
    items = list(csv.DictReader((tmp_path / ".sentdist/leaks/tiny.csv").read_text().splitlines()))
    levels = {item["level"] for item in items if item["training data"] == "my-rows"}
    assert "folded" in levels and levels <= set(LEAKS_HEADER), levels


def test_a_store_that_cannot_be_written_is_reported_before_leaks_are_looked_for(
    tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(store: ArtifactStore) -> None:
        raise StoreError(where=store.shown, found="a read-only file system", expected="one that can be written", remedy="None.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ArtifactStore, "check_writable", refuse)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(tiny_values(tiny_encoder_dir)))
    done = CliRunner().invoke(app, ["leaks", str(recipe), "--data", str(write_data(tmp_path / "data")), "--store", str(tmp_path / "store")])
    assert done.exit_code == 2 and "a read-only file system" in done.stderr and not (tmp_path / ".sentdist").exists(), done.output


def test_the_list_of_items_calls_levels_as_the_table_does() -> None:
    assert {LEVEL_TITLES.get(level, level) for level in get_args(Level)} <= set(LEAKS_HEADER)
    assert f"texts of {CHANGED.start} words or more" in LEAKS_NOTE
