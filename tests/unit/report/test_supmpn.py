"""The SupMPN paper's tables beside ours: which of our cells stands for which printed row."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rayjobs.benchmarks.similarity import read_sentences
from sentdist.objectives.supmpn import SupMPN
from sentdist.plan.stages import Train
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.papers.supmpn import PRINTED_FRACTIONS, SUPMPN_TABLES, TABLES, PremiseFacts
from sentdist.report.printed import STS_COLUMNS
from sentdist.report.score_rows import CellFacts, ResultRow, TableRows
from sentdist.report.tables import ResultTable, build_table
from tests.support.planning import RECIPES, shipped_plan


def facts(augmentation: str | None = None, *, has_groups: bool = True, as_printed: bool = True) -> PremiseFacts:
    return PremiseFacts(has_groups=has_groups, as_printed=as_printed, augmentation=augmentation)


def table_of(*labels: str, columns: tuple[str, ...] = STS_COLUMNS[:-1]) -> ResultTable:
    rows = [
        ResultRow(method=label, label=label, params={}, seed=0, scores={column: 70.0 + place for column in columns})
        for place, label in enumerate(labels)
    ]
    return build_table(TableRows(title="t", rows=rows, columns=columns, average=True, measure=TASK_KINDS["sts"].main), baseline=labels[0])


def test_the_papers_averages_fit_its_cells() -> None:
    for table in SUPMPN_TABLES.values():
        for row in table.rows:
            assert len(row.scores) == len(table.columns) == 8
            assert np.mean(row.scores[:7]) == pytest.approx(row.scores[7], abs=0.008), (table.number, row.label)


def test_supmpn_and_simcse_find_their_rows() -> None:
    known = {"base": None, "simcse": facts(has_groups=False), "supmpn": facts(), "released": facts(as_printed=False)}
    (found,) = TABLES.beside_facts(table_of(*known), known)
    assert {row.label: row.paper_label for row in found.rows} == {"simcse": "SimCSE, supervised", "supmpn": "SupMPN"}
    assert found.rows[1].our_gain == pytest.approx([1.0] * 8)
    assert [found.rows[1].paper_gain[place] for place in (0, 5, 7)] == pytest.approx([0.66, 0.65, 0.5])
    (transfer,) = TABLES.beside_facts(table_of(*known, columns=("MR", "TREC")), known)
    assert transfer.columns == ("MR", "TREC"), "an average over fewer tasks is another number"


def test_a_large_encoder_has_a_row_of_its_own() -> None:
    large = "google-bert/bert-large-uncased"
    known = {"base": facts(), "large": replace(facts(), checkpoint=large), "simcse": replace(facts(has_groups=False), checkpoint=large)}
    found = TABLES.matches(known)
    assert found["2"] == found["3"] == {"base": "SupMPN", "large": "SupMPN-BERT-large"} and found["A1"] == {"base": "None"}


def test_what_is_masked_otherwise_or_learns_otherwise_is_no_row_of_the_paper() -> None:
    train = next(
        stage
        for stage in shipped_plan(RECIPES / "supmpn_sts.yaml").stages
        if isinstance(stage, Train) and isinstance(stage.objective, SupMPN)
    )
    for changes, as_printed in (({}, True), ({"masked": "zero"}, False), ({"phi": 0.1}, False), ({"temperature": 0.1}, False)):
        objective = SupMPN.model_validate(train.objective.model_dump() | {"temperature": 0.05} | changes)
        found = TABLES.facts(CellFacts(train=train.model_copy(update={"objective": objective})))
        assert isinstance(found, PremiseFacts) and found.as_printed == as_printed, changes


def test_a_corpus_that_is_filled_otherwise_or_reworded_by_another_share_is_no_row_of_the_paper() -> None:
    stages = shipped_plan(RECIPES / "supmpn_sts.yaml").stages
    train = next(stage for stage in stages if isinstance(stage, Train) and isinstance(stage.objective, SupMPN))
    objective = train.objective.model_copy(update={"temperature": 0.05})
    printed = {name: SimpleNamespace(name=name, fraction=fraction) for name, fraction in PRINTED_FRACTIONS.items()}
    other = {name: SimpleNamespace(name=name, fraction=fraction / 2) for name, fraction in PRINTED_FRACTIONS.items()}
    cases: list[tuple[dict[str, Any], bool]] = [({}, True), ({"at_least": 2}, False), ({"fill": "own"}, False)]
    cases += [({"augmentation": one}, True) for one in printed.values()] + [({"augmentation": one}, False) for one in other.values()]
    for changes, as_printed in cases:
        corpus = train.corpus.model_copy(update=changes)
        found = TABLES.facts(CellFacts(train=train.model_copy(update={"objective": objective, "corpus": corpus})))
        assert isinstance(found, PremiseFacts) and found.as_printed == as_printed, changes
        assert found.augmentation == getattr(changes.get("augmentation"), "name", None)


def test_figure_2_has_its_twelve_sentences() -> None:
    file = RECIPES / "papers/supmpn_figure2.tsv"
    sentences, topics = read_sentences(file)
    assert len(set(sentences)) == 12 and topics == [name for name in ("weather", "sport", "smartphone", "food") for _ in range(3)]


def test_rewordings_find_their_rows() -> None:
    known = {str(name): facts(name) for name in (None, "word_deletion", "synonyms", "paraphrases")}
    (found,) = TABLES.beside_facts(table_of(*known), known)
    assert [row.paper_label for row in found.rows] == ["None", "RD", "SR", "PP"]


@pytest.mark.parametrize("labels", [("supmpn",), ("one", "two")])
def test_what_cannot_be_distinguished_stands_beside_nothing(labels: tuple[str, ...]) -> None:
    known = {label: facts() for label in labels}
    assert list(TABLES.beside_facts(table_of(*known), known)) == []


def test_other_columns_stand_beside_nothing() -> None:
    known = {"simcse": facts(has_groups=False), "supmpn": facts()}
    assert list(TABLES.beside_facts(table_of(*known, columns=("scenes",)), known)) == []
