"""What is written in a row that stands beside a printed one: everything that its loss and its corpus have of their own."""

from __future__ import annotations

import pytest

from sentdist.objectives.info_nce import InfoNCE
from sentdist.objectives.objective_spec import ObjectiveSpec
from sentdist.objectives.rcl import RCL, Regulators
from sentdist.objectives.supmpn import SupMPN
from sentdist.plan.corpora.groups import GroupedCorpus, GroupPart
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.objectives import AnyObjective, Sum, Term
from sentdist.plan.specs import LexicalSpec, Regularizers, RelationalScoring, RelationWeight, View
from sentdist.plan.stages import Train
from sentdist.report.score_rows import CellFacts
from tests.support.planning import RECIPES, shipped_plan

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
    assert reported(objective) == said


def test_the_terms_of_a_sum_say_their_weights() -> None:
    terms = (Term(objective=InfoNCE(temperature=0.05)), Term(objective=Regulators(), weight=0.1))
    assert reported(Sum(terms=terms)) == "info_nce weight 1, info_nce temperature 0.05, regulators weight 0.1"


def test_a_corpus_says_its_size_and_its_groups() -> None:
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
    plain, others = said_of({}), []
    others.append(said_of({"regularizers": Regularizers(attention_dropout=0.2, drophead=0.1)}))
    others.append(said_of({"start": TRAIN}))
    others.append(said_of({"training": TRAIN.training.model_copy(update={"freeze_encoder": True})}))
    others.append(said_of({}, view=View(postprocess="whiten")))
    others.append(said_of({}, view=View(channels=(0, 64))))
    weights = (RelationWeight(relation="entailment", weight=1.0),)
    others.append(said_of({}, view=View(relations=RelationalScoring(weights=weights, directions="one"))))
    expected = (
        "attention dropout 0.2, drophead 0.1",
        "after info_nce",
        "encoder frozen",
        "postprocess whiten",
        "channels 0 to 64",
        "directions one",
    )
    for found, said in zip(others, expected, strict=True):
        assert said in found and said not in plain


def test_an_encoder_says_whether_it_is_whole() -> None:
    random = TRAIN.encoder.model_copy(update={"initialization": "random", "layers": 2})
    name = TRAIN.encoder.checkpoint
    assert CellFacts(train=TRAIN.model_copy(update={"encoder": random})).line.startswith(f"{name}, random weights, layers 2, mean, ")
    assert CellFacts(scores=SCORES.model_copy(update={"encoder": random})).line == f"{name}, random weights, layers 2, mean"
    assert CellFacts(scores=SCORES.model_copy(update={"encoder": LexicalSpec(name="bm25")})).line == CellFacts().line == ""
