"""A report over tasks of every kind has a table for each, and tests between rows where items allow one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.unroll import unroll
from sentdist.report.sweep_report import Report, report_sweep
from sentdist.report.tables import brief_table
from sentdist.stages.context import Context
from sentdist.stages.planning.resolve import FileResolver
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from tests.support.building import run_local
from tests.support.tasks_data import write_table

WHO, WHAT = ("man", "woman", "child", "dog", "cat", "bird"), ("eats", "drinks", "plays", "sings", "reads", "walks")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    texts = [(f"the {who} {what}", str(number % 2)) for number, who in enumerate(WHO) for what in WHAT]
    write_table(root, "my/labels", [{"text": text, "label": label} for text, label in texts])
    pairs = [
        {"sentence1": f"a {who} {what}", "sentence2": f"the {other} {what}", "label": int(who == other)}
        for who, what, other in zip(WHO, WHAT, (*WHO[:3], *WHO[:3]), strict=True)
    ]
    write_table(root, "my/paraphrases", pairs)
    write_table(
        root,
        "sts/stsb",
        [
            {"split": "test", "sentence1": one["sentence1"], "sentence2": one["sentence2"], "score": 4.5 * int(str(one["label"]))}
            for one in pairs
        ],
    )
    rows = [
        {"query_id": who, "query": f"a {who} sings", "document_id": other, "document": f"the {other} sings", "relevance": int(who == other)}
        for who in WHO
        for other in WHO
    ]
    write_table(root, "my/candidates", rows)
    return root


def test_every_kind_has_its_table(planted_encoder_dir: Path, data: Path, tmp_path: Path) -> None:
    tasks = ["classification=my/labels", "clustering=my/labels", "pairs=my/paraphrases", "reranking=my/candidates", "geometry-stsb"]
    values = {
        "name": "kinds",
        "encoder": {"checkpoint": str(planted_encoder_dir)},
        "corpus": {"source": "none"},
        "evaluation": {"tasks": tasks},
        "methods": {"planted": {}, "random": {"encoder": {"initialization": "random"}}},
        "baseline": "random",
    }
    resolver = FileResolver(data_root=data)
    plan = unroll(recipe_from_values(values, where="kinds"), resolver)
    store = ArtifactStore(str(tmp_path / "store"))
    sweep = sweep_record(plan)
    save_sweep(store, sweep)
    run_local(plan, Context(store=store, data_root=str(data), folders=resolver.folders))
    made = report_sweep(store, "kinds")
    for title in ("Labels from frozen embeddings", "Paraphrases", "Re-ranking", "Clusters", "Geometry"):
        assert title in made.markdown and title in made.html
    assert "Accuracy × 100" in made.markdown and "V-measure × 100" in made.markdown
    assert {f"table{number}.csv" for number in range(1, 5)} <= made.files.keys()
    assert "classification-my-labels" in brief_table(sweep, sweep.records(store)).columns
    tests = {"jackknife", "max_t", "confidence_set"}
    assert _cited(made) == {"senteval", "v_measure", "geometry", "effective_rank"} | tests, "works of what stands in the page, no others"


def _cited(report: Report) -> set[str]:
    return set(re.findall(r"^@\w+\{(\w+),", str(report.files["citations.bib"]), flags=re.MULTILINE))
