"""Which package may import which, how many lines each may have, and what importing may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Set
from pathlib import Path
from typing import cast

import pytest

from sentdist.recipe.objectives import OBJECTIVES

ROOT = Path(__file__).parents[2]
CROSSING = {"gather.py"}  # the only one that knows of other ranks

# What all packages may use, at the top of sentdist.
FOR_ALL = {"errors", "families", "files", "frozen", "machine", "text"}

# package -> lines that it may have at most, C++ and templates included. A commit may lower a budget, never raise one.
BUDGETS: dict[str, int] = {
    "api": 833,
    "cli": 1951,
    "corpora": 1983,
    "data": 3940,
    "evaluation": 2357,
    "inference": 1582,
    "kernels": 3017,
    "learning": 4578,
    "objectives": 2057,
    "recipe": 3541,
    "report": 4518,
    "run": 6181,
    "services": 659,
    "stages": 2938,
    "store": 2127,
    "tasks": 1756,
    "top": 1445,
    "tracking": 1345,
}

STAGED = {"corpora", "objectives", "recipe", "tasks", "store", "learning", "kernels", "data", "evaluation"}

# package -> packages of sentdist that it may import from; itself and those for all always.
MAY_IMPORT: dict[str, set[str]] = {
    **{module: set() for module in FOR_ALL},
    "kernels": set(),
    "objectives": {"learning", "kernels"},  # only where a loss is made: see below
    "recipe": {"objectives", "corpora", "tasks"},
    "tasks": {"corpora", "recipe", "learning", "data", "evaluation"},  # of recipe: specs
    "corpora": {"objectives", "recipe", "tasks", "data", "learning"},  # of recipe: stage, specs, resolver, on which its kinds are built
    "store": {"corpora", "recipe", "tasks"},
    "learning": {"kernels"},
    "data": set(),
    "evaluation": set(),
    "stages": STAGED,
    "inference": {*STAGED, "stages"},
    "tracking": {"corpora", "recipe", "store", "tasks"},
    "run": {*STAGED, "stages", "inference", "tracking", "services"},
    "report": {"corpora", "objectives", "recipe", "store", "evaluation", "tasks"},
    "services": set(),
    "api": {*STAGED, "stages", "inference", "run", "report", "tracking"},
    "__init__": {"api"},
}  # cli, rayjobs and __main__: all

# third party -> the only places that may import it.
OWNED_BY: dict[str, set[str]] = {
    "ray": {"run"},
    "deepspeed": {"run"},
    "mlflow": {"tracking"},
    "matplotlib": {"report"},
    "jinja2": {"report", "text"},
    "markdown_it": {"report"},
    "markupsafe": {"report", "text"},
    "typer": {"cli", "rayjobs"},
    "rich": {"cli", "rayjobs"},
    "torch": {"families", "objectives", "learning", "kernels", "stages", "inference", "run", "rayjobs"},
    "transformers": {"objectives", "learning", "kernels", "run", "rayjobs"},
    "sentence_transformers": {"learning", "rayjobs", "tracking"},
    "onnx": {"learning"},
    "onnxruntime": {"learning"},
    "mteb": {"inference"},
    "datasets": {"data", "rayjobs"},  # rayjobs: the peer in the benchmark
    "pydantic": {"corpora", "frozen", "objectives", "recipe", "store", "tasks"},
    "yaml": {"recipe", "learning"},
}


def _sources() -> list[Path]:
    return sorted([*(ROOT / "sentdist").rglob("*.py"), *(ROOT / "rayjobs").rglob("*.py")])


def _package(path: Path) -> str:
    """The package of a file; a module at the top of sentdist is one of its own."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "rayjobs" if parts[0] == "rayjobs" else parts[1]


@pytest.fixture(scope="module")
def sources() -> dict[Path, list[ast.AST]]:
    """The nodes of every file; the first is the module."""
    return {path: list(ast.walk(ast.parse(path.read_text()))) for path in _sources()}


def _imports(path: Path, nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, at the top or inside a function, with its line."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            module = node.module or ""
            # `from sentdist import plan` names the package only in its second half
            yield from ((node.lineno, f"{module}.{alias.name}" if module == "sentdist" else module) for alias in node.names)


def test_every_package_imports_only_what_the_table_allows(sources: dict[Path, list[ast.AST]]) -> None:
    broken = []
    for path, nodes in sources.items():
        package = _package(path)
        if package in ("cli", "rayjobs", "__main__"):
            continue
        for line, module in _imports(path, nodes):
            parts = module.split(".")
            if parts[0] == "rayjobs" or (
                parts[0] == "sentdist" and parts[1:] and parts[1] not in {*FOR_ALL, package, *MAY_IMPORT[package]}
            ):
                broken.append(f"{path.relative_to(ROOT)}:{line}: {package} may not import {module}")
    assert not broken, "\n".join(broken)


def test_every_foreign_package_has_its_owners(sources: dict[Path, list[ast.AST]]) -> None:
    broken = []
    for path, nodes in sources.items():
        for line, module in _imports(path, nodes):
            owners = OWNED_BY.get(module.split(".")[0])
            if owners is not None and _package(path) not in owners:
                broken.append(f"{path.relative_to(ROOT)}:{line}: {module} may only be imported by {', '.join(sorted(owners))}")
    assert not broken, "\n".join(broken)


def test_no_objective_crosses_ranks_but_by_gather() -> None:
    crossing = [
        str(path.relative_to(ROOT))
        for path in (*(ROOT / "sentdist/objectives").rglob("*.py"), *(ROOT / "sentdist/learning").glob("*.py"))
        if "torch.distributed" in path.read_text() and path.name not in CROSSING
    ]
    assert not crossing


def test_a_training_s_loop_and_session_know_no_method(sources: dict[Path, list[ast.AST]]) -> None:
    """What one method does and others do not, its objective does in a hook, or a batch holds."""
    methods = {*OBJECTIVES, "relation", "relations", "adversary", "adversaries"}
    known_to_all = ("learning/loop.py", "learning/optimization.py", "learning/engine.py", "learning/grad_cache.py", "stages/train.py")
    for name in (*known_to_all, "stages/train.py", "stages/train.py"):
        nodes = sources[ROOT / "sentdist" / name]
        said = {node.id for node in nodes if isinstance(node, ast.Name)} | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        said |= {node.arg or "" for node in nodes if isinstance(node, ast.keyword | ast.arg)}
        assert not {word for word in said if word in methods or methods & set(word.lower().split("_"))}, name
        asked = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "isinstance")]
        known = ("isinstance(objective, nn.Module)", "isinstance(self._objective, nn.Module)")
        assert not [text for node in asked if "objective" in (text := ast.unparse(node)) and text not in known], name


def test_no_files_import_one_another_in_a_circle(sources: dict[Path, list[ast.AST]]) -> None:
    """Imports inside functions and those for types alone count, too."""
    files = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__"): nodes
        for path, nodes in sources.items()
    }
    needed = {name: {other for other in _modules_of(nodes, files.keys()) if other != name} for name, nodes in files.items()}
    while free := {name for name, others in needed.items() if not others}:
        needed = {name: others - free for name, others in needed.items() if name not in free}
    # Left are circles, and what imports one without being part of it.
    while outside := needed.keys() - {other for others in needed.values() for other in others}:
        needed = {name: others for name, others in needed.items() if name not in outside}
    assert not {name: sorted(others) for name, others in needed.items()}


def _modules_of(nodes: list[ast.AST], files: Set[str]) -> Iterator[str]:
    """Those of our files that a file imports."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & files
            if names - files and node.module in files:
                yield node.module


def test_no_package_exceeds_its_budget_of_lines() -> None:
    written = {".py", ".cpp", ".h", ".jinja", ".css"}
    lines: dict[str, int] = defaultdict(int)
    for path in (ROOT / "sentdist").rglob("*"):
        if path.suffix in written:
            package = _package(path)
            lines["top" if package in (*FOR_ALL, "__init__", "__main__") else package] += len(path.read_text().splitlines())
    assert {name: count for name, count in lines.items() if count > BUDGETS[name]} == {}
    assert not BUDGETS.keys() - lines.keys()


def test_every_module_opens_with_a_sentence_that_says_what_it_knows(sources: dict[Path, list[ast.AST]]) -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path, nodes in sources.items()
        if path.read_text().strip() and not ast.get_docstring(cast(ast.Module, nodes[0]))
    ]
    assert not silent and sources


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("sentdist.recipe.unroll", ("torch", "ray", "mlflow", "pyarrow", "numpy", "transformers")),
        ("sentdist.store.sweep", ("torch", "ray", "mlflow", "transformers")),
        ("sentdist", ("torch", "ray", "mlflow", "pyarrow", "numpy", "transformers", "pydantic", "yaml", "typer")),
        ("sentdist.api", ("torch", "ray", "mlflow", "transformers", "matplotlib", "jinja2")),
        ("sentdist.cli", ("torch", "ray", "mlflow", "pyarrow", "transformers", "matplotlib", "jinja2")),
        ("sentdist.run.sweep", ("torch", "mlflow", "transformers", "sklearn", "ray.tune")),  # the driver, whose trials import Tune
        ("sentdist.run.backend", ("torch", "ray", "mlflow", "pandas", "transformers")),  # by `--local` and Python, too
        ("sentdist.run.search", ("ray", "torch", "mlflow", "transformers")),  # of any driver
        ("sentdist.run.trials", ("torch", "mlflow", "transformers")),  # a search's driver, and trials that only wait
        ("sentdist.run.embed", ("torch", "mlflow", "transformers")),  # in a worker that searches a file of embeddings
        ("sentdist.stages.text_stages", ("torch", "ray", "mlflow", "transformers")),  # texts alone are compared
        ("sentdist.stages.local", ("torch", "ray", "mlflow", "transformers")),  # by `leaks`, which builds corpora
        ("sentdist.tasks.kinds", ("torch", "datasketch", "scipy.stats", "sklearn")),  # by whoever plans with a file of their own
        ("sentdist.stages.scores", ("torch", "ray", "mlflow", "sklearn", "scipy.stats", "datasets", "matplotlib")),  # in a worker
    ],
)
def test_importing_loads_nothing_heavy_that_is_not_always_needed(module: str, forbidden: tuple[str, ...]) -> None:
    script = f"import sys, {module}; print(sorted(set(sys.modules) & {set(forbidden)!r}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
