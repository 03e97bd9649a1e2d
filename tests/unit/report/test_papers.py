"""Tables of papers beside ours: which of our cells stands for which printed row, what is printed, what is cited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import yaml

from rayjobs.benchmarks.similarity import read_sentences
from sentdist.errors import DataError
from sentdist.objectives.info_nce import InfoNCE
from sentdist.objectives.objective_spec import ObjectiveSpec
from sentdist.objectives.rcl import RCL, Regulators
from sentdist.objectives.supmpn import SupMPN
from sentdist.plan.corpora.groups import GroupedCorpus, GroupPart
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.objectives import OBJECTIVES, AnyObjective, Sum, Term
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.shipped import PAPERS
from sentdist.plan.specs import EncoderSpec, LexicalSpec, Regularizers, RelationalScoring, RelationWeight, View
from sentdist.plan.stage import Json
from sentdist.plan.stages import Scores, Train
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.tasks import TASK_GROUPS, TASKS
from sentdist.plan.unroll import unroll
from sentdist.report.citations import CITATIONS, givers, works_of_stages, works_of_sweep
from sentdist.report.paper_page import report_paper, shown_tables
from sentdist.report.papers import auxiliary, rcl, rse, simcse, sts_regression, supmpn
from sentdist.report.papers.auxiliary import AuxiliaryFacts
from sentdist.report.papers.rse import RelationalFacts, link_tables
from sentdist.report.papers.sts_regression import RegressionFacts
from sentdist.report.papers.supmpn import PRINTED_FRACTIONS, PremiseFacts
from sentdist.report.printed import STS_COLUMNS, tables_of
from sentdist.report.score_rows import CellFacts, ResultRow, TableRows
from sentdist.report.tables import ResultTable, build_table
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord
from tests.support.paper_size import PaperResolver, paper_plan
from tests.support.planning import RECIPES, plan_of, shipped_plan, small_recipe
from tests.support.relations_data import relations_values, write_relations_data
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


def test_printed_tables_hold_together() -> None:
    for name in PAPERS:
        for table in tables_of(name).tables.values():
            labels = [row.label for row in table.rows]
            assert len(set(labels)) == len(labels), table.number
            assert table.base is None or table.base in labels
            assert set(table.recipes) <= {*labels, ""}
            for recipe in table.recipes.values():
                assert (RECIPES.parents[1] / recipe.partition(" ")[0].rstrip(",")).exists(), recipe
            for row in table.rows:
                assert len(row.scores) == len(table.columns) and {*row.printed, *row.starred} <= set(table.columns)
                if len(row.scores) == 8:  # seven tasks and their mean, rounded, once truncated
                    assert np.mean(row.scores[:7]) == pytest.approx(row.scores[7], abs=0.011), (table.number, row.label)
                assert all(printed != row.scores[table.columns.index(column)] for column, printed in row.printed.items())
    assert (
        rcl.PAPER_TABLES["3"].row("RCL") == rcl.PAPER_TABLES["5"].row("RCL")
        and rcl.PAPER_REGULATORS[8] == rcl.PAPER_TABLES["3"].row("RCL").scores[-1]
    )
    sentences, topics = read_sentences(RECIPES / "papers/supmpn_figure2.tsv")
    assert len(set(sentences)) == 12 and topics == [name for name in ("weather", "sport", "smartphone", "food") for _ in range(3)]


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


def test_link_prediction_stands_under_its_relations(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values = relations_values(tiny_encoder_dir, paper="rse", seeds=[0, 1])
    plan, context = tiny_plan(values, data=write_relations_data(tmp_path / "data"), store=tmp_path / "store")
    fill_store(context.store, plan, noise=lambda trial: 1.0, num_items={"stsb": 40})
    table = report_paper(context.store, "rse").markdown.split("## Table 7")[1].splitlines()
    (under,) = [below for line, below in pairwise(table) if line.startswith("| All |")]
    assert under.startswith("| ↳ rse (") and under.count("[") >= 4


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
    words = CellFacts(scores=Scores(encoder=LexicalSpec(name="word_overlap"), tasks=()))
    for floor in (
        words,
        untouched(base, initialization="random"),
        untouched(base, layers=3),
        untouched(base, {"postprocess": "whiten"}),
        CellFacts(),
    ):
        assert not any(rcl.TABLES.our_rows({"floor": floor}).values())
    cells = {"words": words, "base": untouched(base), "dropped": trained("info_nce", attention=0.1)}
    beside = next(
        one for one in rcl.TABLES.beside_facts(table_of(*cells, columns=("STS12",), baseline=False), cells) if one.paper.number == "1a"
    )
    assert next(row.our_gain[0] for row in beside.rows if row.label == "dropped") == pytest.approx(1.0), (
        "over the checkpoint, not over the words"
    )
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
    transfer = replace(relational("entailment", "paraphrase", modelled=True), is_scored=False)
    assert rse.TABLES.matches({"last": transfer, "five": replace(transfer, pooling="cls_last_five")})["6"] == {"five": "RSE"}
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
    for name, tables in (("FacebookAI/roberta-base", ["2"]), ("google-bert/bert-base-uncased", ["1", "2", "4"])):
        found = rse.TABLES.matches({"rse": replace(relational(*TWO, modelled=True), checkpoint=name)})
        assert [number for number in ("1", "2", "4", "5") if found[number]] == tables, name
    degrees = {f"τ {value}": relational(*TWO, modelled=True, temperature=value) for value in (0.01, 0.05, 0.3)}
    assert rse.TABLES.matches(degrees)["4"].keys() == {"τ 0.01", "τ 0.05"} and list(rse.TABLES.matches(degrees)["2"]) == ["τ 0.05"]
    assert _beside(rse.TABLES, {"rse": known["rse"], "other": relational("entailment", temperature=1.0)}) == [], "a single row"


def test_cells_of_rse_by_their_recipes() -> None:
    values = yaml.safe_load((RECIPES / "rse_sts.yaml").read_text())
    of_rse = values["methods"]["rse"]
    values["methods"]["certain"] = of_rse | {"title": "certain", "objective": {"name": "rse", "phi": 0.01}}
    values["methods"]["plain"] = of_rse | {"title": "plain", "objective": {"name": "rse", "hard_negatives": False}}
    cells = {
        trial.method: CellFacts(train=trial.scores.encoder if isinstance(trial.scores.encoder, Train) else None, scores=trial.scores)
        for trial in unroll(recipe_from_values(values, where="recipe"), PaperResolver()).trials
    }
    found = rse.TABLES.our_rows(cells)
    assert {label for label, row in found["2"].items() if row == "RSE"} == {*found["4"]} == {"rse", "rse_one_direction"}
    parts = {"links": 1.0, "links.entailment": 80.0, "links.all": 60.0}
    scores = {f"{part}.{measure}": score for part, score in parts.items() for measure in ("mrr", "hits@1", "hits@3", "hits@10")}
    sweep = SimpleNamespace(trials=[SimpleNamespace(method="rse", cell="rse", key="k", seed=0)])
    links = link_tables(cast(SweepRecord, sweep), cast(dict[str, Record], {"k": SimpleNamespace(results=scores)}), {"rse": cells["rse"]})
    means = {one.table.title: one.table.line("rse").cells["MRR"].summary for one in links}
    assert {title: summary.mean for title, summary in means.items() if summary is not None} == {"Entailment": 80.0, "All": 60.0}


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
    assert found["3"] == {
        "k2": "BERT Smooth K2 Loss",
        "all": "Ours + STS-B and SICK-R train",
        "r_all": "Ours + STS-B and SICK-R train, RoBERTa",
    }
    assert (
        found["4"]["r_all"] == "RoBERTa Smooth K2 Loss, k = 3, x0 = 0.25 + STS-B and SICK-R train"
        and found["5"]["r_uv"] == "(u, v), RoBERTa"
    )
    (features,) = tables.beside_facts(table_of("uv", "diff"), {name: regression(features=name) for name in ("uv", "diff")})
    assert {row.label: row.paper for row in features.rows} == {"uv": (53.30,), "diff": (54.84,)}
    found = tables.matches({
        "steeper": replace(k2, slope=3.0), "narrower": replace(k2, threshold=0.2), "RoBERTa": replace(k2, checkpoint="roberta-base"),
        "second": replace(second, slope=3.5), "relu": replace(k2, loss="translated_relu"),
    })  # fmt: skip
    assert not found["2"] and not found["3"] and not found["5"] and found["4"].keys() == {"steeper", "second", "relu"}
    assert found["4"]["relu"] == "BERT Translated ReLU, k = 2, x0 = 0.25"
    assert _beside(tables, {f"cell {number}": second for number in range(3)}) == [], "a grid"


def test_rows_of_its_repository() -> None:
    """It trains a head alone, then both together."""
    nomic, tables = "nomic-ai/nomic-embed-text-v1", sts_regression.TABLES
    head = replace(regression(), checkpoint=nomic, head_alone=True, sources=("nli/snli", "nli/mnli"), is_nli=True)
    ours = replace(
        regression(goes_on=True, is_filtered=True), checkpoint=nomic, slope=3.0, threshold=0.2, start=head, keeps_head=True,
        sources=("sts/stsb", "sts/sick"),
    )  # fmt: skip
    known = {"base": tables.facts(untouched(nomic)), "head": head, "ours": ours}
    assert tables.matches(known)["EMNLP"] == {"base": "Nomic Embed Text v1", "ours": "Nomic Embed Text v1 + Ours"}
    others: list[dict[str, Any]] = [{"checkpoint": "minilm-l6"}, {"pooling": "cls"}, {"initialization": "random"}, {"layers": 6}]
    for other in (untouched(**({"checkpoint": nomic} | one)) for one in others):
        assert tables.matches({"base": tables.facts(other)})["EMNLP"] == {}
    changes: list[dict[str, Any]] = [
        {"checkpoint": f"{nomic}.5"}, {"pooling": "cls"}, {"is_pretrained": False}, {"is_filtered": False}, {"keeps_head": False}, {"head_alone": True},
        {"slope": 3.5}, {"threshold": 0.25}, {"boundary": "one_sided"}, {"sources": ("sts/stsb",)}, {"start": None},
        *({"start": replace(head, **one)} for one in ({"head_alone": False}, {"slope": 3.0}, {"is_nli": False}, {"features": "uv"}, {"goes_on": True})),
    ]  # fmt: skip
    for change in changes:
        assert tables.matches({"other": replace(ours, **change)})["EMNLP"] == {}, change
    bert = {"checkpoint": "google-bert/bert-base-uncased"}
    unfiltered = replace(ours, is_filtered=False, slope=4.0, threshold=0.25, **bert)
    assert not any(tables.matches({"head": replace(head, **bert), "second": unfiltered}).values()), "the paper's tables train both together"
    together = tables.matches({"second": replace(unfiltered, start=replace(head, head_alone=False))})
    assert together["3"] == {"second": "Ours + STS-B and SICK-R train"}


def premise(augmentation: str | None = None, *, has_groups: bool = True, as_printed: bool = True) -> PremiseFacts:
    return PremiseFacts(has_groups=has_groups, as_printed=as_printed, augmentation=augmentation)


def test_rows_of_supmpn() -> None:
    tables, large = supmpn.TABLES, "google-bert/bert-large-uncased"
    known = {"base": None, "simcse": premise(has_groups=False), "supmpn": premise(), "released": premise(as_printed=False)}
    assert _beside(tables, known) == [[("simcse", "SimCSE, supervised"), ("supmpn", "SupMPN")]]
    (found,) = tables.beside_facts(table_of(*known), known)
    assert found.rows[1].our_gain == pytest.approx([1.0] * 8) and found.rows[1].paper_gain[0] == pytest.approx(0.66)
    (transfer,) = tables.beside_facts(table_of(*known, columns=("MR", "TREC")), known)
    assert transfer.columns == ("MR", "TREC"), "an average over fewer tasks is another number"
    matched = tables.matches(
        {"base": premise(), "large": replace(premise(), checkpoint=large), "simcse": replace(premise(has_groups=False), checkpoint=large)}
    )
    assert matched["2"] == matched["3"] == {"base": "SupMPN", "large": "SupMPN-BERT-large"} and matched["A1"] == {"base": "None"}
    rewordings = {str(name): premise(name) for name in (None, "word_deletion", "synonyms", "paraphrases")}
    assert [[row for _, row in table] for table in _beside(tables, rewordings)] == [["None", "RD", "SR", "PP"]]
    assert _beside(tables, {"one": premise(), "two": premise()}) == [] == _beside(tables, known, columns=("scenes",))
    train = _train("supmpn_sts.yaml", "supmpn")
    cases: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
        ({}, {}, True), ({"masked": "zero"}, {}, False), ({"phi": 0.1}, {}, False), ({"temperature": 0.1}, {}, False), ({}, {"at_least": 2}, False),
        ({}, {"fill": "own"}, False),
        *(({}, {"augmentation": SimpleNamespace(name=name, fraction=fraction / by)}, by == 1) for name, fraction in PRINTED_FRACTIONS.items() for by in (1, 2)),
    ]  # fmt: skip
    for of_objective, of_corpus, as_printed in cases:
        objective = SupMPN.model_validate(train.objective.model_dump() | {"temperature": 0.05} | of_objective)
        changed = train.model_copy(update={"objective": objective, "corpus": train.corpus.model_copy(update=of_corpus)})
        facts = tables.facts(CellFacts(train=changed))
        assert isinstance(facts, PremiseFacts) and facts.as_printed == as_printed, (of_objective, of_corpus)
        assert facts.augmentation == getattr(of_corpus.get("augmentation"), "name", None)


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
    for channels, part in ((None, "whole"), ("tags", "pos"), ("words", "bow"), ((0, 128), "pos"), ((128, 768), "bow")):
        cell: Any = SimpleNamespace(train=SimpleNamespace(objective=InfoNCE()), view=View(channels=channels))  # type: ignore[arg-type]
        assert auxiliary.auxiliary_facts(cell) == AuxiliaryFacts(has_tasks=False, part=part)  # type: ignore[arg-type]
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


def test_what_chose_the_weights_is_said() -> None:
    chosen = TRAIN.selection
    assert chosen is not None and said_of({}).endswith("selected on stsb-dev")
    both = chosen.model_copy(update={"further_tasks": (chosen.task.model_copy(update={"name": "sickr-dev"}),)})
    assert said_of({"selection": both}).endswith("selected on stsb-dev+sickr-dev")
    assert said_of({"selection": None}).endswith("last weights")


def test_dropouts_beginnings_and_readings_that_no_printed_row_has_are_said() -> None:
    weights = (RelationWeight(relation="entailment", weight=1.0),)
    for changes, view, said in (
        ({"regularizers": Regularizers(attention_dropout=0.2, drophead=0.1)}, None, "attention dropout 0.2, drophead 0.1"),
        ({"start": TRAIN}, None, "after info_nce"),
        ({"training": TRAIN.training.model_copy(update={"freeze_encoder": True})}, None, "encoder frozen"),
        ({}, View(postprocess="whiten"), "postprocess whiten"),
        ({}, View(channels=(0, 64)), "channels 0 to 64"),
        ({}, View(relations=RelationalScoring(weights=weights, directions="one")), "directions one"),
    ):
        assert said in said_of(changes, view=view) and said not in said_of({})


def test_an_encoder_says_whether_it_is_whole() -> None:
    random = TRAIN.encoder.model_copy(update={"initialization": "random", "layers": 2})
    name = TRAIN.encoder.checkpoint
    assert CellFacts(train=TRAIN.model_copy(update={"encoder": random})).line.startswith(f"{name}, random weights, layers 2, mean, ")
    assert CellFacts(scores=SCORES.model_copy(update={"encoder": random})).line == f"{name}, random weights, layers 2, mean"
    assert CellFacts(scores=SCORES.model_copy(update={"encoder": LexicalSpec(name="bm25")})).line == CellFacts().line == ""


NOBODY_S = ("generated/", "text/wiki", "./", "pairs.csv")  # made here; Wikipedia's, which has no paper; a user's own


def _is_somebody_s(name: str) -> bool:
    return not name.startswith(NOBODY_S)


@pytest.mark.parametrize("recipe", ["combinations.yaml", "rse_relations.yaml", "supmpn_sts.yaml", "papers/rse_table5.yaml"])
def test_the_data_and_checkpoints_of_a_shipped_recipe_are_cited(recipe: str) -> None:
    stages = shipped_plan(RECIPES / recipe).stages
    encoders = [one.encoder for one in stages if isinstance(one, Train | Scores)]
    names = {one.checkpoint for one in encoders if isinstance(one, EncoderSpec)}
    names |= {part.source for one in stages if isinstance(one, CorpusStage) for part in one.sources}
    assert {name for name in names if _is_somebody_s(name) and not givers(name)} == set()
    assert works_of_stages(stages) <= set(CITATIONS)


def test_the_texts_of_a_task_are_cited() -> None:
    assert {name for name, card in TASKS.items() if _is_somebody_s(card.source) and card.citation is None} == set()
    assert {card.citation for card in TASKS.values()} - {None} <= set(CITATIONS)


def test_a_score_cites_the_texts_of_its_task_and_one_of_the_seven_of_sts_the_protocol_too() -> None:
    for task in TASKS:
        found: Any = SimpleNamespace(tasks=[task], kinds=[], facts={})
        protocol = {"simcse"} if task in TASK_GROUPS["sts"] else set()
        assert works_of_sweep(found, {}, []) == sorted({TASKS[task].citation} - {None} | protocol)


def test_a_name_gives_those_that_made_it_and_no_others() -> None:
    assert givers("FacebookAI/roberta-base") == ["roberta"] and givers("google-bert/bert-base-uncased") == ["bert"]
    assert givers("sentence-transformers/nli-roberta-base-v2") == ["sbert", "roberta", "snli", "mnli"]
    assert givers("sentence-transformers/all-MiniLM-L6-v2") == ["sbert", "minilm"], "capitals are the hub's"
    assert givers("nli/new_protocols") == ["new_protocols"] and givers("my/folder") == []
