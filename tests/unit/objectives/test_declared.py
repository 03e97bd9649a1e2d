"""What is known of an objective is declared with it: no other part of the package asks which one it is."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

import pytest

import sentdist
from sentdist.objectives.mlm import MaskedLM
from sentdist.objectives.objective_spec import ObjectiveSpec
from sentdist.objectives.rcl import RCL, Regulators
from sentdist.plan.objectives import OBJECTIVES, Sum, Term
from sentdist.plan.stages import Train
from sentdist.report.score_rows import CellFacts
from tests.support.planning import plan_of, small_recipe

ROOM = Path(sentdist.__file__).parent
RULES = ("report", "evaluation", "stages", "execution", "learning")
PAPERS = ROOM / "report" / "papers"  # whose tables are rows of their own objectives


def asked_for(tree: ast.AST) -> Iterator[str]:
    """Names of objectives that something is compared with, and classes of objectives that are imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.MatchValue):
            yield from (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and one.value in OBJECTIVES)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sentdist.objectives."):
            module = importlib.import_module(str(node.module))
            kinds = [one.name for one in node.names if isinstance(kind := getattr(module, one.name, None), type) and is_one(kind)]
            yield from kinds


def is_one(kind: type) -> bool:
    return issubclass(kind, ObjectiveSpec) and kind is not ObjectiveSpec


@pytest.mark.parametrize("room", RULES)
def test_nothing_outside_the_plan_asks_for_an_objective_by_name(room: str) -> None:
    files = [file for file in sorted((ROOM / room).rglob("*.py")) if PAPERS not in file.parents]
    found = {str(file.relative_to(ROOM)): names for file in files if (names := list(asked_for(ast.parse(file.read_text()))))}
    assert found == {}


def test_the_search_finds_names_and_classes() -> None:
    code = "from sentdist.objectives.rcl import RCL\nx == 'rcl'\ny in ('info_nce',)\nmatch z:\n    case 'rse': pass\nw = 'rcl'"
    assert sorted(asked_for(ast.parse(code))) == ["RCL", "info_nce", "rcl", "rse"]


@pytest.mark.parametrize("kind", OBJECTIVES.values(), ids=OBJECTIVES)
def test_an_objective_with_a_bank_says_what_it_makes_of_it(kind: type[ObjectiveSpec]) -> None:
    assert (kind.regulators_per_bank > 0) == kind.needs.bank, "a bank is there for regulators"
    assert (kind.without_bank is not None) == (kind.needs.bank and kind.needs.alone), "it has a point at 0 in a figure of regulators"
    assert kind.without_bank is None or not kind.without_bank.needs.bank


def test_a_report_counts_what_an_objective_declares_whatever_its_name() -> None:
    class Held(RCL):
        name: Literal["held"] = "held"  # type: ignore[assignment]
        regulators_per_bank: ClassVar[int] = 3

    train = next(stage for stage in plan_of(small_recipe()).stages if isinstance(stage, Train) and len(stage.banks) == 2)
    facts = CellFacts(train=train.model_copy(update={"objective": Held()}))
    assert (facts.num_regulators, facts.without_bank) == (6, "info_nce")
    summed = Sum(terms=(Term(objective=MaskedLM()), Term(objective=Regulators())))
    assert CellFacts(train=train.model_copy(update={"objective": summed})).num_regulators == 4
    plain = CellFacts(train=train.model_copy(update={"objective": MaskedLM()}))
    assert (plain.num_regulators, plain.without_bank) == (0, None)
