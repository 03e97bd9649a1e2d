"""Every field of every value has a test of its effect, or stands here with the reason why it has none."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from tests.parity.wiring import training_cases
from tests.parity.wiring.declared import declared, named_of_the_project
from tests.parity.wiring.fields import COVERED, all_fields

ROOT = Path(__file__).parents[3]
NAMES = "names and pins: they distinguish values and change keys, not results"
SETTLED = "what the corpus has, written out; another value is refused (tests/unit/plan/test_regression.py)"
PAPERWORK = "titles, and what a report shows"
PLACEMENT = "how the work is spread; parity tests hold results the same"
SEARCHED = "what is tried: tests/unit/plan/test_suggestions.py, tests/unit/execution/test_searching.py"
WITHOUT_EFFECT: dict[str, str] = {
    **dict.fromkeys(("Regression.label_range", "Regression.spacing"), SETTLED),
    **dict.fromkeys(
        ("Recipe.name", "Recipe.about", "Recipe.baseline", "Recipe.headline", "Recipe.paper", "Method.title", "Method.reported"), PAPERWORK
    ),
    **dict.fromkeys(("Recipe.methods", "Recipe.sweep"), "tests/unit/plan/test_unroll.py"),
    **dict.fromkeys(("Recipe.confirm_seeds",), "further seeds of the cell that dev chose: tests/unit/report/test_confirmation.py"),
    **dict.fromkeys(("Recipe.runtime",), PLACEMENT),
    **dict.fromkeys(("Augmentation.checkpoint",), "a model of its own writes the sentences: tests/unit/learning/test_paraphrase.py"),
    **dict.fromkeys(("Overlap.of", "Overlap.tasks", "Overlap.near"), "no score: tests/unit/stages/test_overlaps.py"),
    **dict.fromkeys(
        ("Tokens.corpus", "Tokens.max_length", "Tokens.tokenizer"), "what tokenizing again would give: tests/unit/stages/test_tokens.py"
    ),
    **dict.fromkeys(("RowsCorpus.own", "GradedPart.own", "Task.own", "TripletTask.own"), "tests/unit/stages/test_own_recipe.py"),
    **dict.fromkeys(("Method.shapes",), "which methods there are: tests/unit/plan/test_own_corpus.py"),
    **dict.fromkeys(("Rung.of", "Rung.share"), "a part of a training: tests/parity/test_rungs.py"),
    **dict.fromkeys(("Recipe.search",), SEARCHED),
    **dict.fromkeys(
        ("Encoded.encoder", "Encoded.max_length", "Encoded.precision", "Encoded.sentences", "Encoded.prompt"), "kept embeddings, of no plan"
    ),
}
OWN_FILE = "what of a person's own file is read and held out: tests/unit/data/test_own_rows.py"
CLASSES_WITHOUT_EFFECT = {
    "Runtime": PLACEMENT,
    **dict.fromkeys(("OwnRows", "OwnSection", "HeldOutSection"), OWN_FILE),
    **dict.fromkeys(("Search", "Axis", "Halving", "Budget"), SEARCHED),
}
FIELDS_WITHOUT_EFFECT = {"name": NAMES, "kind": NAMES, "revision": NAMES, "source_revision": NAMES, "tagger_revision": NAMES}


def covered() -> set[str]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if "\nfrom tests.parity.wiring.fields import covers" in path.read_text():
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return COVERED | {name for case in (*training_cases.OBJECTIVE_CASES, *training_cases.STEP_CASES) for name in case.fields}


def test_every_field_has_a_case_or_a_reason() -> None:
    fields = set(all_fields())
    excused = {one for one in fields if one.partition(".")[0] in CLASSES_WITHOUT_EFFECT or one.partition(".")[2] in FIELDS_WITHOUT_EFFECT}
    missing = sorted(fields - covered() - excused - set(WITHOUT_EFFECT))
    assert not missing, f"no case shows what these change: {', '.join(missing)}"
    stale = sorted((covered() | set(WITHOUT_EFFECT)) - fields)
    assert not stale, f"no longer a field: {', '.join(stale)}"
    assert not set(WITHOUT_EFFECT) & covered()


@pytest.mark.parametrize("objective", declared())
def test_the_reference_of_an_objective_reads_nothing_of_the_project(objective: str) -> None:
    assert not named_of_the_project(declared()[objective].loss)


def test_the_reference_imports_nothing_of_the_project() -> None:
    for name in ("parity/wiring/reference.py", "parity/wiring/reference_training.py", "support/pooled.py"):
        tree = ast.parse((ROOT / "tests" / name).read_text())
        modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert not [module for module in modules if module.startswith("sentdist")]
