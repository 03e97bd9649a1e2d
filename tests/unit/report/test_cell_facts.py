"""What is written in a row that stands beside a printed one: everything that its loss and its corpus have of their own."""

from __future__ import annotations

import pytest

from sentdist.objectives.info_nce import InfoNCE
from sentdist.objectives.objective import ObjectiveSpec
from sentdist.objectives.rcl import RCL
from sentdist.objectives.regulators import Regulators
from sentdist.objectives.supmpn import SupMPN
from sentdist.plan.corpora.groups import GroupedCorpus, GroupPart
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.objectives import AnyObjective, Sum, Term
from sentdist.plan.stages import Train
from sentdist.report.cell_facts import CellFacts
from tests.support.planning import RECIPES, shipped_plan

TRAIN = next(stage for stage in shipped_plan(RECIPES / "simcse.yaml").stages if isinstance(stage, Train) and not stage.banks)
PARTS = (GroupPart(source="nli/snli", source_revision="1"),)


def told(objective: AnyObjective, corpus: CorpusStage | None = None) -> str:
    corpus = corpus or RowsCorpus(source="nli/triplets", source_revision="1", split="train")
    found = CellFacts(train=TRAIN.model_copy(update={"objective": objective, "corpus": corpus})).line
    head, _, rest = found.partition(f"epochs {TRAIN.training.epochs}")
    assert head.endswith(f"{TRAIN.encoder.pooling}, batch {TRAIN.training.batch_size}, ")
    return rest.removeprefix(", ")


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (RCL(), ""),
        (RCL(regulator_temperature=1.0), ""),  # the main term's
        (RCL(temperature=0.05, regulator_temperature=0.05, hard_negatives=False), "temperature 0.05, hard negatives off"),
        (RCL(regulator_temperature=0.3, regulator_weight=0.5), "regulator temperature 0.3, regulator weight 0.5"),
        (SupMPN(), ""),
    ],
)
def test_an_objective_says_what_it_has_of_its_own(objective: ObjectiveSpec, said: str) -> None:
    assert told(objective) == said


def test_the_terms_of_a_sum_say_their_weights() -> None:
    terms = (Term(objective=InfoNCE(temperature=0.05)), Term(objective=Regulators(), weight=0.1))
    assert told(Sum(terms=terms)) == "info_nce weight 1, info_nce temperature 0.05, regulators weight 0.1"


def test_a_corpus_says_its_size_and_its_groups() -> None:
    assert told(SupMPN(), RowsCorpus(source="nli/triplets", source_revision="1", limit=4000)) == "limit 4000"
    assert told(SupMPN(), GroupedCorpus(parts=PARTS)) == ""
    assert told(SupMPN(), GroupedCorpus(parts=PARTS, num_positives=3, num_negatives=1)) == "positives 3, negatives 1"
