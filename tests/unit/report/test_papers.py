"""Tables of papers beside ours: which of our cells stands for which printed row, what is printed, what is cited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from sentdist.errors import DataError
from sentdist.objectives.info_nce import InfoNCE
from sentdist.objectives.objective_spec import ObjectiveSpec
from sentdist.objectives.rcl import RCL, Regulators
from sentdist.objectives.supmpn import SupMPN
from sentdist.plan.corpora.groups import GroupedCorpus, GroupPart
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.objectives import OBJECTIVES, AnyObjective, Sum, Term
from sentdist.plan.shipped import PAPERS
from sentdist.plan.specs import EncoderSpec, View
from sentdist.plan.stage import Json
from sentdist.plan.stages import Scores, Train
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.tasks import TASKS
from sentdist.report.citations import CITATIONS, givers
from sentdist.report.paper_page import report_paper, shown_tables
from sentdist.report.papers import auxiliary, rcl, rse, simcse, sts_regression
from sentdist.report.papers.auxiliary import AuxiliaryFacts
from sentdist.report.papers.rse import RelationalFacts
from sentdist.report.papers.sts_regression import RegressionFacts
from sentdist.report.papers.supmpn import PremiseFacts
from sentdist.report.printed import STS_COLUMNS, tables_of
from sentdist.report.score_rows import CellFacts, ResultRow, TableRows
from sentdist.report.tables import ResultTable, build_table
from sentdist.store.store import ArtifactStore
from tests.support.paper_size import paper_plan
from tests.support.planning import RECIPES, plan_of, shipped_plan, small_recipe
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


def _beside(tables: Any, known: Mapping[str, Any], **given: Any) -> list[list[tuple[str, str]]]:
    """Which rows stand beside which printed ones, in each table."""
    return [[(row.label, row.paper_label) for row in one.rows] for one in tables.beside_facts(table_of(*known, **given), known)]


def _named(paper: str) -> set[str]:
    """Recipes at the paper's size that its tables name."""
    recipes = {recipe for table in tables_of(paper).tables.values() for recipe in table.recipes.values()}
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
            expected = {row.label for row in table.printed.rows if table.printed.recipe(row.label) == FOLDER + recipe}
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


def _train(recipe: str, objective: str) -> Train:
    stages = shipped_plan(RECIPES / recipe).stages
    return next(one for one in stages if isinstance(one, Train) and not one.banks and one.objective.name == objective)


def test_rows_of_rcl() -> None:
    base = "sentence-transformers/nli-roberta-base-v2"

    def trained(objective: str, *, phis: tuple[float, ...] = (), heads: float = 0.0, attention: float | None = None) -> CellFacts:
        regulators = len(phis) * OBJECTIVES[objective].regulators_per_bank
        facts = {"objective": objective, "phis": phis, "num_regulators": regulators, "drophead": heads, "attention_dropout": attention}
        return cast(CellFacts, type("Trained", (CellFacts,), facts)())

    found = rcl.TABLES.our_rows({
        "rcl": trained("rcl", phis=(0.01, 0.02, 0.03, 0.04)), "others": trained("rcl", phis=(0.01, 0.02, 0.03, 0.05)),
        "attention": trained("info_nce", attention=0.1), "heads": trained("info_nce", heads=0.1), "both": trained("info_nce", attention=0.1, heads=0.2),
    })  # fmt: skip
    assert found["3"] == {"rcl": "RCL", "attention": "Attention dropout p=0.1", "heads": "DropHead p=0.1"}
    assert found["5"] == {"rcl": "RCL"} and found["4"] == {"rcl": "8"}
    found = rcl.TABLES.our_rows({"base": untouched(base)})
    assert found["1a"] == found["1b"] == found["3"] == {"base": "SRoBERTa-base"} and found["4"] == {"base": "0"}
    for floor in (
        untouched(base, initialization="random"),
        untouched(base, layers=3),
        untouched(base, {"postprocess": "whiten"}),
        CellFacts(),
    ):
        assert not any(rcl.TABLES.our_rows({"floor": floor}).values())
    scores = {trial.method: trial.scores for trial in plan_of(small_recipe()).trials}
    facts = {name: CellFacts(train=one.encoder, scores=one) for name, one in scores.items() if isinstance(one.encoder, Train)}
    assert {name: (one.phis, one.num_regulators) for name, one in facts.items()} == {"fine_tuned": ((), 0), "rcl": ((0.01, 0.02), 4)}


TWO, FIVE = ("entailment", "duplicate-question"), ("entailment", "duplicate-question", "paraphrase", "same-caption", "qa-entailment")


def relational(*relations: str, modelled: bool = False, negatives: bool = True, temperature: float = 0.05) -> RelationalFacts:
    return RelationalFacts(relations=relations, is_modelled=modelled, is_scored=modelled, hard_negatives=negatives, temperature=temperature)


def test_rows_of_rse() -> None:
    six = relational(*FIVE, "same-sentence", modelled=True)
    best = replace(six, best_alone=True)
    large = replace(best, checkpoint="google-bert/bert-large-uncased")
    found = rse.TABLES.matches(
        {"six": six, "best": best, "large": large, "mixed": replace(relational(*TWO, modelled=True), best_alone=True)}
    )
    assert found["5"] == {"best": "RSE", "large": "RSE-BERT-large"} and not found["2"] and not found["3"]
    known = {
        "base": None, "nli": relational("entailment"), "questions": relational("duplicate-question"),
        "alone": relational("duplicate-question", negatives=False), "merged": relational(*TWO, negatives=False), "negatives": relational(*FIVE),
        "five": relational(*FIVE, negatives=False), "rse": relational(*TWO, modelled=True), "one direction": relational(*TWO, modelled=True),
        "plain": replace(relational(*TWO, modelled=True), is_scored=False),
    }  # fmt: skip
    assert _beside(rse.TABLES, known, baseline=False) == [
        [("nli", "*Entailment"), ("alone", "Duplicate Question"), ("five", "All 5 relations"), ("rse", "RSE, mixed")],
        [("nli", "SimCSE, supervised"), ("rse", "RSE")],
    ]
    main = list(rse.TABLES.beside_facts(table_of(*known, baseline=False), known))[1]
    assert main.rows[1].our_gain == pytest.approx([6.0] * 8) and main.rows[1].paper_gain[0] == pytest.approx(0.97)
    assert _beside(rse.TABLES, {"rse": known["rse"], "other": relational("entailment", temperature=1.0)}) == [], "a single row"


def test_rows_of_simcse() -> None:
    train = _train("simcse.yaml", "info_nce")

    def cell(columns: tuple[str, ...], *, objective: ObjectiveSpec | None = None, start: Train | None = None) -> CellFacts:
        corpus = RowsCorpus(source="nli/triplets", source_revision="1", columns=columns)
        return CellFacts(
            train=train.model_copy(update={"objective": objective or InfoNCE(temperature=0.05), "corpus": corpus, "start": start})
        )

    triplets, twice, ranking = ("sent0", "sent1", "hard_neg"), ("sentence", "sentence"), InfoNCE(temperature=0.05, hard_negatives=False)
    cells = {
        "untouched": CellFacts(), "sup": cell(triplets), "unsup": cell(twice, objective=ranking), "ranking": cell(triplets, objective=ranking),
        "warm": cell(triplets, objective=InfoNCE(temperature=1.0)), "rcl": cell(triplets, objective=RCL(temperature=0.05)),
        "second stage": cell(triplets, start=train),
    }  # fmt: skip
    found = {label: simcse.TABLES.facts(one) for label, one in cells.items()}
    assert {label: row for label, row in found.items() if row} == {"sup": "SimCSE, supervised", "unsup": "SimCSE, unsupervised"}
    (beside,) = simcse.TABLES.beside(table_of("sup", "unsup", columns=("STS12", "STS-B")), cells)
    assert {row.label: row.paper[:2] for row in beside.rows} == {"sup": (75.30, 84.25), "unsup": (68.40, 76.85)}


def regression(loss: str = "smooth_k2", *, features: str = "uv_diff", goes_on: bool = False, is_filtered: bool = False) -> RegressionFacts:
    slope, threshold = (4.0 if goes_on else 2.0, 0.25) if loss == "smooth_k2" else (None, None)
    return RegressionFacts(
        loss=loss, boundary="left_mask", features=features, slope=slope, threshold=threshold, goes_on=goes_on, is_filtered=is_filtered
    )


def test_rows_of_sts_regression() -> None:
    tables, k2, second = sts_regression.TABLES, regression(), regression(goes_on=True)
    known = {
        "base": None, "ce": regression("cross_entropy"), "mse": regression("mse"), "k2": k2, "all": second,
        "filtered": regression(goes_on=True, is_filtered=True),
    }  # fmt: skip
    assert _beside(tables, known) == [
        [("ce", "BERT Cross Entropy"), ("mse", "BERT MSE Loss"), ("k2", "BERT Smooth K2 Loss")],
        [("k2", "BERT Smooth K2 Loss"), ("all", "Ours + STS-B and SICK-R train")],
    ]
    losses = next(iter(tables.beside_facts(table_of(*known), known)))
    assert losses.rows[2].our_gain == pytest.approx([2.0] * 8) and losses.rows[2].paper_gain[0] == pytest.approx(2.38)
    roberta = {"checkpoint": "FacebookAI/roberta-base"}
    found = tables.matches({
        "k2": k2, "r_k2": replace(k2, slope=3.0, **roberta), "r_l1": replace(regression("l1"), **roberta), "all": second,
        "r_all": replace(second, slope=3.0, **roberta), "r_uv": replace(regression(features="uv"), slope=3.0, **roberta),
    })  # fmt: skip
    assert found["2"] == {"k2": "BERT Smooth K2 Loss", "r_k2": "RoBERTa Smooth K2 Loss", "r_l1": "RoBERTa L1 Loss"}
    assert _beside(tables, {f"cell {number}": second for number in range(3)}) == [], "a grid"


def premise(augmentation: str | None = None, *, has_groups: bool = True, as_printed: bool = True) -> PremiseFacts:
    return PremiseFacts(has_groups=has_groups, as_printed=as_printed, augmentation=augmentation)


def test_rows_of_the_auxiliary_poster() -> None:
    plain = AuxiliaryFacts(has_tasks=False)
    whole = AuxiliaryFacts(has_tasks=True, adversary="entropy")
    known = {
        "base": None, "simcse": plain, "tasks": AuxiliaryFacts(has_tasks=True), "adversaries": whole, "reversal": replace(whole, adversary="reversal"),
        "tags": replace(whole, part="pos"), "words": replace(whole, part="bow"),
    }  # fmt: skip
    parts = [("tags", "Our POS"), ("words", "Our BOW")]
    assert [sorted(one) for one in _beside(auxiliary.TABLES, known)] == [
        sorted([("simcse", "SimCSE"), *parts]), sorted([("simcse", "SimCSE"), ("adversaries", "Our sentence"), *parts]),
    ]  # fmt: skip
    assert _beside(auxiliary.TABLES, {"one": plain}) == [] == _beside(auxiliary.TABLES, {"one": whole, "two": whole, "simcse": plain})


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


def test_an_objective_and_a_corpus_say_what_they_have_of_their_own() -> None:
    terms = (Term(objective=InfoNCE(temperature=0.05)), Term(objective=Regulators(), weight=0.1))
    for objective, said in (
        (RCL(), ""),
        (RCL(regulator_temperature=1.0), ""),  # the main term's
        (RCL(temperature=0.05, regulator_temperature=0.05, hard_negatives=False), "temperature 0.05, hard negatives off"),
        (RCL(regulator_temperature=0.3, regulator_weight=0.5), "regulator temperature 0.3, regulator weight 0.5"),
        (SupMPN(), ""),
        (Sum(terms=terms), "info_nce weight 1, info_nce temperature 0.05, regulators weight 0.1"),
    ):
        assert reported(objective) == said
    assert reported(SupMPN(), RowsCorpus(source="nli/triplets", source_revision="1", limit=4000)) == "limit 4000"
    assert reported(SupMPN(), GroupedCorpus(parts=PARTS)) == ""
    assert reported(SupMPN(), GroupedCorpus(parts=PARTS, num_positives=3, num_negatives=1)) == "positives 3, negatives 1"


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
