"""Protocols of the papers from recipe to printed table, on data of a few rows: USEB by the best relation, transfer tasks, FAQs in folds."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path

import pytest

from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.report.paper_page import report_paper
from sentdist.report.sweep_report import report_sweep
from sentdist.report.sweep_rows import sweep_rows, useb_scores
from sentdist.stages.context import folder_of
from sentdist.store.sweep import load_sweep, save_sweep, sweep_record
from tests.support.building import run_local
from tests.support.relations_data import relations_values, write_relations_data
from tests.support.tasks_data import write_forums, write_table
from tests.support.tiny_data import PLACES, SUBJECTS, VERBS, tiny_plan, tiny_values, write_data

SCENES = [f"{subject} {verb} {place}" for subject in SUBJECTS for verb in VERBS for place in PLACES]


def write_useb(root: Path) -> None:
    """The files of USEB's release, a few rows each."""
    write_forums(root / "retrieval/cqadupstack")
    asked = root / "reranking/askubuntu"
    asked.mkdir(parents=True)
    (asked / "text_tokenized.txt").write_text("".join(f"{n}\t{SCENES[n]}\tbody\n" for n in range(40)))
    for split, first in (("dev", 0), ("test", 20)):
        rows = [f"{first + n}\t{first + n + 1}\t{first + n + 1} {first + n + 2} {first + n + 3}\t1 2 3" for n in range(5)]
        (asked / f"{split}.txt").write_text("\n".join(rows) + "\n")
    papers = {str(n): {"title": SCENES[n]} for n in range(40)}
    judged = {str(n): {str(n + 1): 1, str(n + 7): 0, str(n + 9): 0} for n in range(6)}
    relations = {name: judged for name in ("cite", "cocite", "coview", "coread")}
    (root / "reranking/scidocs").mkdir(parents=True)
    (root / "reranking/scidocs/data.json").write_text(json.dumps({"corpus": papers, "valid": relations, "test": relations}))
    tweets = [(SCENES[n], SCENES[n + 1 if n % 2 else -n - 1], 5 if n % 2 else 0) for n in range(20)]
    (root / "pairs/Twitter_URL_Corpus_test.txt").write_text("".join(f"{a}\t{b}\t({votes}, 6)\tu\n" for a, b, votes in tweets))
    (root / "pairs/test.data").write_text("".join(f"1\tt\t{a}\t{b}\t{votes}\tx\ty\n" for a, b, votes in tweets))


def test_useb_by_the_best_relation_from_selection_to_table(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    data = write_relations_data(tmp_path / "data")
    write_useb(data)
    view: Json = {"relations": {"weights": {"entailment": 1.0, "twin": 1.0}, "directions": "one", "combine": "best"}}
    values = relations_values(
        tiny_encoder_dir,
        name="useb",
        paper="rse",
        selection={"task": "askubuntu-dev+cqadupstack-dev+twitter+scidocs-dev", "every_fraction": 1.0},
        evaluation={"tasks": ["useb"]},
        methods={"plain": {"objective": {"name": "info_nce", "temperature": 0.05}}, "rse": {"objective": {"name": "rse"}, "view": view}},
        baseline="plain",
    )
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    run_local(plan, context)
    save_sweep(context.store, sweep_record(plan))
    trial = next(trial for trial in plan.trials if trial.method == "rse")
    artifact = context.store.get(trial.scores)
    assert artifact is not None and isinstance(trial.scores.encoder, Train)
    results = artifact.record.results
    assert results["cqadupstack"] == max(results["cqadupstack.by.entailment"], results["cqadupstack.by.twin"])  # type: ignore[type-var]
    lines = map(json.loads, (folder_of(trial.scores.encoder, context) / "history.jsonl").read_text().splitlines())
    assert all(0 < line["dev_score"] <= 100 for line in lines if "dev_score" in line)
    report = report_sweep(context.store, "useb")
    markdown = report.markdown
    table = markdown.split("## Universal sentence embedding benchmark (USEB)\n")[1].split("\n## ")[0]
    assert f"{useb_scores(results)['Avg']:.2f}" in table and "TwitterPara Avg" in table
    assert "rse, twin" in markdown.split("each relation alone (RSE, Figure 5)")[1]
    figure = list(csv.DictReader(io.StringIO(str(report.files["useb-relations.csv"]))))
    assert {(row["system"], row["relation"]) for row in figure} == {("rse", "entailment"), ("rse", "twin"), ("plain", "")}
    shown = {row["task"]: float(row["mean"]) for row in figure if row["relation"] == "twin"}
    assert shown == pytest.approx({task: useb_scores(results, "twin")[task] for task in shown}, abs=1e-3) and len(shown) == 4
    records = load_sweep(context.store, "useb").records(context.store)
    facts = sweep_rows(load_sweep(context.store, "useb"), context.store, records).facts["rse"]
    assert facts.flattered == "weights chosen by twitter-url and twitter-pit, which are scored; relation chosen by the test"
    assert "not run: rayjobs/recipes/papers/rse_table5.yaml" in report_paper(context.store, "rse").markdown, "two relations are not six"


def test_transfer_tasks_choose_and_the_last_five_layers_are_read(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    data, draw = write_data(tmp_path / "data"), random.Random(0)
    for name, splits in {
        "mr": (None,),
        "cr": (None,),
        "subj": (None,),
        "mpqa": (None,),
        "sst2": ("train", "dev", "test"),
        "trec": ("train", "test"),
        "mrpc": ("train", "test"),
    }.items():
        rows = [
            {"text": text, "text2": draw.choice(SCENES), "label": str(int("house" in text)), **({} if split is None else {"split": split})}
            for split in splits
            for text in (*[one for one in SCENES if "house" in one][:12], *[one for one in SCENES if "house" not in one][:12])
        ]  # fmt: skip
        write_table(data, f"transfer/{name}", rows)  # type: ignore[arg-type]
    values = tiny_values(
        tiny_encoder_dir,
        selection={"task": "transfer-dev", "every_fraction": 1.0},
        evaluation={"tasks": ["sst2"]},
        methods={"fine_tuned": {"objective": {"name": "info_nce"}}},
        baseline=None,
    ) | {"encoder": {"checkpoint": str(tiny_encoder_dir), "pooling": "cls_last_five"}}
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    run_local(plan, context)
    train = plan.trials[0].scores.encoder
    assert isinstance(train, Train)
    best = context.store.get(train).record.results["best_dev_score"]  # type: ignore[union-attr]
    assert isinstance(best, float) and 40 < best <= 100


def test_faqs_in_folds_stand_beneath_the_printed_rows(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    pairs = "".join(f"<qaPair><Id>{n}</Id><Question>{SCENES[n]}</Question><Answer>{SCENES[n]} today</Answer></qaPair>" for n in range(30))
    folder = data / "retrieval/faqir"
    folder.mkdir(parents=True)
    (folder / "FAQIRv1.0.xml").write_text(
        "<IRSet><queries><Query><QueryGroupID>1</QueryGroupID><QueryID>a</QueryID><QueryString>who</QueryString></Query></queries>"
        f"<KB><Pairs>{pairs}</Pairs></KB><relCandidates><IRCandidateList><grpId>1</grpId><candidates><IRCandidate><Id>1</Id><Annotations>"
        "<Annotation><Val>1</Val></Annotation></Annotations></IRCandidate></candidates></IRCandidateList></relCandidates></IRSet>"
    )
    values = tiny_values(
        tiny_encoder_dir,
        paper="rcl",
        corpus={"source": "retrieval/faqir", "split": "questions"},
        folds={"num": 3},
        selection=None,
        evaluation={"tasks": ["faqir"]},
        methods={"base": {}, "drophead": {"objective": {"name": "info_nce"}, "regularizers": {"drophead": 0.1}}},
        baseline="base",
    )
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    run_local(plan, context)
    save_sweep(context.store, sweep_record(plan))
    found = [context.store.get(trial.scores).record.results["faqir.map"] for trial in plan.trials if trial.method == "drophead"]  # type: ignore[union-attr]
    table = report_paper(context.store, "rcl").markdown.split("## Table 2a")[1].split("## Table 2b")[0]
    (line,) = [one for one in table.splitlines() if one.startswith("| ↳ drophead")]
    assert len(found) == 3 and f"| {sum(map(float, found)) / 3:.2f}" in line  # type: ignore[arg-type]
    assert line.split("|")[-2].strip() not in ("", "–"), "the gain over the untouched encoder"
    assert "not run: rayjobs/recipes/papers/rcl_table2a.yaml" in table, "RCL itself was not run"
    assert pytest.approx(30) == len({query for trial in plan.trials for query in _queries(context, trial.scores)})


def _queries(context: object, stage: object) -> list[str]:
    import pyarrow.parquet as pq

    store = context.store  # type: ignore[attr-defined]
    return [str(one) for one in pq.read_table(store.folder(store.get(stage)) / "items/faqir.parquet")["query_id"].to_pylist()]
