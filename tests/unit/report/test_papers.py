"""Tables of papers beside ours: which of our cells stands for which printed row, what is printed, what is cited."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from sentdist.corpora.groups import Augmentation, GroupPart
from sentdist.corpora.kind import CorpusStage
from sentdist.corpora.rows import RowsCorpus
from sentdist.errors import DataError
from sentdist.objectives.rcl import RCL
from sentdist.recipe.objectives import AnyObjective
from sentdist.recipe.shipped import PAPERS
from sentdist.recipe.specs import EncoderSpec, View
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Scores, Train
from sentdist.report.citations import CITATIONS, givers
from sentdist.report.paper_page import report_paper, shown_tables
from sentdist.report.printed import STS_COLUMNS, tables_of
from sentdist.report.score_rows import CellFacts, ResultRow, TableRows
from sentdist.report.tables import ResultTable, build_table
from sentdist.store.store import ArtifactStore
from sentdist.tasks.cards import TASKS
from sentdist.tasks.kinds import TASK_KINDS
from tests.support.paper_size import paper_plan
from tests.support.planning import RECIPES, shipped_plan
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

FOLDER = "rayjobs/recipes/papers/"
SEVEN = STS_COLUMNS[:-1]


def table_of(*labels: str, columns: tuple[str, ...] = SEVEN, baseline: bool = True) -> ResultTable:
    """Of scores of 70 in the first row, 71 in the second, and so on."""
    rows = [
        ResultRow(method=label, label=label, params={}, seed=0, scores=dict.fromkeys(columns, 70.0 + place))
        for place, label in enumerate(labels)
    ]
    given = TableRows(title="t", rows=rows, columns=columns, average=True, measure=TASK_KINDS["sts"].main)
    return build_table(given, baseline=labels[0] if baseline else None)


def _named(paper: str) -> set[str]:
    """Recipes at the paper's size that its tables name."""
    recipes = {row.recipe or "" for table in tables_of(paper).tables.values() for row in table.rows}
    return {recipe.removeprefix(FOLDER) for recipe in recipes if recipe.startswith(FOLDER)}


def test_each_recipe_of_a_paper_is_named_by_a_table() -> None:
    assert set.union(*map(_named, PAPERS)) == {path.name for path in (RECIPES / "papers").glob("*.yaml")}


@pytest.mark.parametrize("paper", PAPERS)
def test_each_recipe_of_a_paper_fills_the_rows_that_name_it(paper: str, tmp_path: Path) -> None:
    for recipe in _named(paper):
        store = ArtifactStore(tmp_path / recipe)
        fill_store(store, paper_plan(recipe, "seeds=[0]"), noise=lambda trial: 1.0, num_items=defaultdict(lambda: 12), num_steps=2)
        for table in shown_tables(store, paper):
            assert not [rows for name, rows in table.not_run.items() if name == FOLDER + recipe], table.printed.number
            expected = {row.label for row in table.printed.rows if row.recipe == FOLDER + recipe}
            ours, printed = [], ""
            for row in table.rows:
                printed = row.label if row.kind == "paper" else printed
                if row.kind == "ours" and printed in expected:
                    ours.append(row)
                    assert all(cell[0] != "–" for cell in row.cells[:-1]), (table.printed.number, row)
            if expected and table.printed.base in expected:
                assert any(row.cells[-1] != ("",) for row in ours), (table.printed.number, "no gain")


def test_an_empty_store_gives_every_printed_row_with_misprints_and_recipes(tmp_path: Path) -> None:
    for name, shown in (("supmpn", "94.81 (misprinted 84.81)"), ("rse", "74.86 (misprinted 74.89)"), ("auxiliary", "not run")):
        report = report_paper(ArtifactStore(tmp_path), name)
        assert shown in report.markdown and "not run: rayjobs/recipes/" in report.markdown and report.html.startswith("<!doctype html>")
        assert all(f"## Table {table.number}: {table.caption}" in report.markdown for table in tables_of(name).tables.values())
    for name, said in (("unheard of", "rcl, sts_regression, rse"), ("regression", 'Did you mean "sts_regression"')):
        with pytest.raises(DataError, match=said):
            report_paper(ArtifactStore(tmp_path), name)


def test_ours_stand_beneath_theirs_with_difference_interval_and_gain(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    seeds: Json = [0, 1, 2]
    for name, paper in (("tiny", "rcl"), ("theirs", "simcse")):
        methods = tiny_values(tiny_encoder_dir)["methods"]
        assert isinstance(methods, dict)
        methods["rcl"]["phis"] = [0.01, 0.02, 0.03, 0.04]  # type: ignore[call-overload, index]
        values = tiny_values(tiny_encoder_dir, name=name, seeds=seeds, paper=paper, methods=methods)
        plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
        fill_store(context.store, plan, noise=lambda trial: 1.0 if trial.method == "rcl" else 1.5, num_items={"stsb": 60})
    table = report_paper(context.store, "rcl").markdown.split("## Table 3")[1].split("## Table 4")[0]
    assert "theirs" not in table and "not run: rayjobs/recipes/papers/rcl_table1.yaml" in table
    printed, ours = next(
        (line, below) for line, below in zip(table.splitlines(), table.splitlines()[1:], strict=False) if line.startswith("| RCL |")
    )
    assert printed.split("|")[7].strip() == "84.85" and ours.startswith("| ↳ rcl (tiny, 3 seeds; ") and "selected on stsb-dev) |" in ours
    cell = ours.split("|")[7].strip()  # STS-B is the one task that was scored
    mean, low, high = float(cell.split()[0]), *map(float, cell.split("[")[1].split("]")[0].split(","))
    assert low < mean < high and f"{mean - 84.85:+.2f} [{low - 84.85:+.2f}" in cell
    assert ours.split("|")[8].strip() == "–", "an average over fewer tasks is another number"


def untouched(checkpoint: str, view: dict[str, str] | None = None, **encoder: str | int) -> CellFacts:
    spec = EncoderSpec.model_validate({"checkpoint": checkpoint, "revision": "1"} | encoder)
    return CellFacts(scores=Scores(encoder=spec, tasks=(), view=View.model_validate(view or {})))


def _rows(paper: str, cell: CellFacts) -> dict[str, str]:
    return {number: found["one"] for number, found in tables_of(paper).our_rows({"one": cell}).items() if found}


def test_an_untouched_encoder_reproduces_a_base_row_only_as_it_is() -> None:
    base = "sentence-transformers/nli-roberta-base-v2"
    assert _rows("rcl", untouched(base)) == {"1a": "SRoBERTa-base", "1b": "SRoBERTa-base", "3": "SRoBERTa-base", "4": "0"}
    changed = untouched(base, initialization="random"), untouched(base, layers=3), untouched(base, {"postprocess": "whiten"}), CellFacts()
    assert [_rows("rcl", cell) for cell in changed] == [{}, {}, {}, {}]
    nomic = "nomic-ai/nomic-embed-text-v1"
    assert _rows("sts_regression", untouched(nomic)) == {"EMNLP": "Nomic Embed Text v1"}
    assert _rows("sts_regression", untouched(nomic, pooling="cls")) == _rows("sts_regression", untouched(nomic + ".5")) == {}


def _changed(value: Any, path: str, new: Any) -> Any:
    """The same value with another one at a dotted path."""
    name, _, rest = path.partition(".")
    return value.model_copy(update={name: _changed(getattr(value, name), rest, new) if rest else new})


SIMCSE, RSE_ROWS = {"5": "SimCSE, supervised"}, {"1": "RSE, mixed", "2": "RSE", "3": "RSE", "4": "τ = 0.05"}
MEAN, LARGE = {"encoder.pooling": "mean"}, {"encoder.checkpoint": "FacebookAI/roberta-large"}
# paper, recipe, method -> the rows that its cell reproduces, and those that remain with a value changed.
NEAR: tuple[tuple[str, str, str, dict[str, str], tuple[tuple[dict[str, Any], dict[str, str]], ...]], ...] = (
    ("simcse", "simcse.yaml", "supervised", SIMCSE, (
        (MEAN, SIMCSE), ({"objective.temperature": 1.0}, {}), ({"objective.hard_negatives": False}, {}),
        ({"objective": RCL(temperature=0.05)}, {}), ({"start": "another training"}, {}), ({"corpus.columns": ("sent0", "sent1")}, {}),
        ({"corpus.columns": ("text", "text"), "objective.hard_negatives": False}, {"5": "SimCSE, unsupervised"}),
    )),
    ("supmpn", "papers/supmpn_table2.yaml", "supmpn", {"2": "SupMPN", "3": "SupMPN", "A1": "None"}, (
        ({"objective.masked": "zero"}, {}), ({"objective.phi": 0.1}, {}), ({"corpus.at_least": 5}, {}), ({"objective.temperature": 0.1}, {}),
        ({"corpus.augmentation": Augmentation(name="synonyms", fraction=0.2)}, {"A1": "SR"}),
        ({"corpus.augmentation": Augmentation(name="synonyms", fraction=0.3)}, {}),
        ({"corpus.num_positives": 3}, {"2": "SupMPN", "3": "SupMPN", "A1": "None"}), (LARGE, {"2": "SupMPN-BERT-large", "3": "SupMPN-BERT-large"}),
    )),
    ("rse", "papers/rse_table2.yaml", "rse", RSE_ROWS, (
        ({"objective.phi": 0.1}, {}), ({"objective.hard_negatives": False}, {}), ({"objective.temperature": 0.1}, {"4": "τ = 0.1"}),
        (LARGE, {"2": "RSE-RoBERTa-large", "3": "RSE-RoBERTa-large"}),
    )),
    ("sts_regression", "papers/regression_table2.yaml", "cross_entropy", {"2": "BERT Cross Entropy"}, (
        ({"objective.loss": "mse"}, {"2": "BERT MSE Loss"}), ({"objective.features": "uv"}, {}), ({"training.freeze_encoder": True}, {}),
        ({"start": "another training"}, {}), ({"objective.loss": "smooth_k2", "objective.slope": 4.0, "objective.threshold": 0.2}, {}),
        ({"objective.loss": "smooth_k2", "objective.slope": 2.5, "objective.threshold": 0.25}, {"4": "BERT Smooth K2 Loss, k = 2.5, x0 = 0.25"}),
        ({"objective.loss": "smooth_k2", "objective.slope": 3.0, "objective.threshold": 0.25} | LARGE,
         {"2": "RoBERTa Smooth K2 Loss", "4": "RoBERTa Smooth K2 Loss, k = 3, x0 = 0.25", "5": "(u, v, |u-v|), RoBERTa"}),
    )),
)  # fmt: skip


@pytest.mark.parametrize(("paper", "recipe", "method", "rows", "changes"), NEAR, ids=[one[0] for one in NEAR])
def test_a_cell_reproduces_a_row_only_with_its_values(
    paper: str, recipe: str, method: str, rows: dict[str, str], changes: tuple[tuple[dict[str, Any], dict[str, str]], ...]
) -> None:
    scores = next(trial.scores for trial in shipped_plan(RECIPES / recipe).trials if trial.method == method)
    train = scores.encoder
    assert isinstance(train, Train) and _rows(paper, CellFacts(train=train, scores=scores)) == rows
    for values, left in changes:
        other = train
        for path, value in values.items():
            other = _changed(other, path, value)
        assert _rows(paper, CellFacts(train=other, scores=scores)) == left, values


TRAIN = next(stage for stage in shipped_plan(RECIPES / "simcse.yaml").stages if isinstance(stage, Train) and not stage.banks)


SCORES = next(trial.scores for trial in shipped_plan(RECIPES / "simcse.yaml").trials if trial.method != "word_overlap")


PARTS = (GroupPart(source="nli/snli", source_revision="1"),)


def reported(objective: AnyObjective, corpus: CorpusStage | None = None) -> str:
    corpus = corpus or RowsCorpus(source="nli/triplets", source_revision="1", split="train")
    return said_of({"objective": objective, "corpus": corpus}).removesuffix("selected on stsb-dev").removesuffix(", ")


def said_of(changes: dict[str, object], *, view: View | None = None) -> str:
    """What stands in a row behind what every row has."""
    train = TRAIN.model_copy(update=changes)
    scores = None if view is None else SCORES.model_copy(update={"view": view})
    found = CellFacts(train=train, scores=scores).line
    head, _, rest = found.partition(f"epochs {train.training.epochs}")
    assert head.endswith(f"{TRAIN.encoder.pooling}, batch {TRAIN.training.batch_size}, ")
    return rest.removeprefix(", ")


NOBODY_S = ("generated/", "text/wiki", "./", "pairs.csv")  # made here; Wikipedia's, which has no paper; a user's own


def _is_somebody_s(name: str) -> bool:
    return not name.startswith(NOBODY_S)


def test_the_texts_of_a_task_are_cited() -> None:
    assert {name for name, card in TASKS.items() if _is_somebody_s(card.source) and card.citation is None} == set()
    assert {card.citation for card in TASKS.values()} - {None} <= set(CITATIONS)


def test_a_name_gives_those_that_made_it_and_no_others() -> None:
    assert givers("FacebookAI/roberta-base") == ["roberta"] and givers("google-bert/bert-base-uncased") == ["bert"]
    assert givers("sentence-transformers/nli-roberta-base-v2") == ["sbert", "roberta", "snli", "mnli"]
    assert givers("sentence-transformers/all-MiniLM-L6-v2") == ["sbert", "minilm"], "capitals are the hub's"
    assert givers("nli/new_protocols") == ["new_protocols"] and givers("my/folder") == []
