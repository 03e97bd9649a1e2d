"""A sample of bugs: how many of 240 small changes to the package do its tests notice?

    python -m tests.mutants draw         choose the mutants, each package in proportion to its lines: mutants.json
    python -m tests.mutants cover DIR    run the tests once and note which lines each of them runs (needs `coverage`)
    python -m tests.mutants run DIR      run, for each mutant, the tests that run its line, until one fails

A mutant names its function and the expression that changes, not a line, so that it is found again where code has moved. The tests are
those that need one process (unit, parity, laws, golden); those that run fewest lines come first, up to `MAX_TESTS` and `MAX_TESTS_S`
seconds for each mutant.
"""

from __future__ import annotations

import ast
import compileall
import copy
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = Path(__file__).with_name("mutants.json")
TESTS = ("tests/unit", "tests/parity", "tests/laws", "tests/golden")
NUM_MUTANTS = 240
MAX_TESTS = 100
MAX_TESTS_S = 20  # of tests, as long as they took without a mutant
TIMEOUT_S = 400  # a mutant that takes longer hangs: killed

Mutant = dict[str, Any]
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def functions_of(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The outermost functions and methods of a module, each with its qualified name."""

    def within(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                yield f"{prefix}{child.name}", child
            elif isinstance(child, ast.ClassDef):
                yield from within(child, f"{prefix}{child.name}.")

    return within(tree, "")


def nodes_of(function: Any) -> list[ast.AST]:
    """Whatever in a function's body may change, in the order of the text: no annotations, no texts."""
    found: list[ast.AST] = []

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            return
        found.append(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    walk(child)

    for statement in function.body:
        walk(statement)
    return found


def changed(node: ast.AST) -> tuple[str, ast.AST] | None:
    """What a mutant makes of a node and the kind of the change; None where it changes nothing."""
    new: Any = copy.deepcopy(node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            new.ops = [SWAPPED[type(op)]()]
            return "comparison", new
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPPED:
            new.op = SWAPPED[type(op)]()
            return "operator", new
        case ast.UnaryOp(op=ast.Not()):
            return "negation", new.operand
        case ast.Constant(value=bool()):
            return "constant", ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            return "constant", ast.Constant(node.value + 1)
        case ast.Call(args=[first, second, *others]) if not any(isinstance(one, ast.Starred) for one in node.args):
            if isinstance(first, ast.Constant) or ast.unparse(first) == ast.unparse(second):
                return None
            new.args = [second, first, *others]
            return "arguments", new
        case ast.Expr(value=ast.Call()):
            return "dropped call", ast.Pass()
    return None


def draw() -> None:
    """Chooses `NUM_MUTANTS` of all possible ones: each package in proportion to its lines, each file of it with its own."""
    lines: dict[str, int] = {}
    options: dict[str, list[Mutant]] = {}
    for path in sorted((ROOT / "sentdist").rglob("*.py")):
        text = path.read_text()
        name = str(path.relative_to(ROOT))
        possible: list[Mutant] = []
        for function, body in functions_of(ast.parse(text)):
            seen: dict[str, int] = defaultdict(int)
            for node in nodes_of(body):
                before = ast.unparse(node)
                if (mutant := changed(node)) is not None:
                    kind, after = mutant
                    possible.append(
                        dict(file=name, function=function, kind=kind, before=before, nth=seen[before], after=ast.unparse(after))
                    )
                seen[before] += 1
        if possible:
            lines[name], options[name] = text.count("\n"), possible
    dice = random.Random(60)
    drawn: list[Mutant] = []
    total, due, at = sum(lines.values()), 0.0, 0
    for name in lines:  # a comb laid over all lines of the package
        due += lines[name] * NUM_MUTANTS / total
        wanted = min(round(due) - at, len(options[name]))
        at = round(due)
        by_kind: dict[str, list[Mutant]] = defaultdict(list)
        for one in options[name]:
            by_kind[one["kind"]].append(one)
        for _ in range(wanted):
            kind = dice.choice(sorted(kind for kind, left in by_kind.items() if left))
            drawn.append(by_kind[kind].pop(dice.randrange(len(by_kind[kind]))))
    MUTANTS.write_text(json.dumps(drawn, indent=0) + "\n")
    print(f"{len(drawn)} mutants in {len({one['file'] for one in drawn})} files")


def located(mutant: Mutant) -> tuple[str, int, str] | None:
    """The file of a mutant, its line and the text of the file with the change; None where its code is gone."""
    here = ROOT / mutant["file"]
    others = sorted((ROOT / "sentdist").rglob("*.py"), key=lambda path: (path.parent != here.parent, path))
    for path in [*([here] if here.exists() else []), *others]:
        text = path.read_text()
        if mutant["function"].split(".")[-1] not in text:
            continue
        for function, body in functions_of(ast.parse(text)):
            if function != mutant["function"]:
                continue
            same = [node for node in nodes_of(body) if hasattr(node, "lineno") and ast.unparse(node) == mutant["before"]]
            if len(same) > mutant["nth"]:
                node: Any = same[mutant["nth"]]
                data = text.splitlines(keepends=True)
                start = sum(len(line.encode()) for line in data[: node.lineno - 1]) + node.col_offset
                end = sum(len(line.encode()) for line in data[: node.end_lineno - 1]) + node.end_col_offset
                after = mutant["after"] if mutant["kind"] == "dropped call" else f"({mutant['after']})"
                source = text.encode()
                return str(path.relative_to(ROOT)), node.lineno, (source[:start] + after.encode() + source[end:]).decode()
    return None


class _Contexts:
    """Tells `coverage` which test runs, and notes how long each took and whether it passed."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.took_s: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    def pytest_runtest_setup(self, item: Any) -> None:
        self.coverage.switch_context(item.nodeid.split("[")[0])

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid.split("[")[0]
        self.took_s[name] += report.duration
        if report.failed:
            self.failed.add(name)


def cover(folder: Path) -> None:
    """Runs all tests in two processes, each test file in one of them."""
    folder.mkdir(parents=True, exist_ok=True)
    files = sorted(str(path.relative_to(ROOT)) for top in TESTS for path in (ROOT / top).rglob("test_*.py"))
    parts = [subprocess.Popen([sys.executable, "-m", "tests.mutants", "part", str(folder), str(i), *files[i::2]], cwd=ROOT) for i in (0, 1)]
    for part in parts:
        part.wait()


def part(folder: Path, which: str, files: list[str]) -> None:
    import coverage
    import pytest

    measured = coverage.Coverage(data_file=str(folder / f"coverage{which}"), source=[str(ROOT / "sentdist")], config_file=False)
    measured.start()
    contexts = _Contexts(measured)
    pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not nightly and not gpu", *files], plugins=[contexts])
    measured.stop()
    measured.save()
    data = measured.get_data()
    lines = {
        str(Path(name).relative_to(ROOT)): {line: tests for line, tests in data.contexts_by_lineno(name).items()}
        for name in data.measured_files()
    }
    (folder / f"cover{which}.json").write_text(json.dumps(dict(lines=lines, took_s=contexts.took_s, failed=sorted(contexts.failed))))


def run(folder: Path) -> None:
    """Runs the tests of each mutant in two copies of the tree; a second call goes on where the first was cut."""
    tests_at: dict[tuple[str, int], set[str]] = defaultdict(set)
    took_s: dict[str, float] = {}
    failed: set[str] = set()
    num_lines: dict[str, int] = defaultdict(int)
    for half in (0, 1):
        covered = json.loads((folder / f"cover{half}.json").read_text())
        took_s |= covered["took_s"]
        failed |= set(covered["failed"])
        for name, at in covered["lines"].items():
            for line, tests in at.items():
                tests_at[name, int(line)] |= {test for test in tests if test}
                for test in tests:
                    num_lines[test] += 1
    log = folder / "killed.jsonl"
    done = {tuple(json.loads(line)[:1]) for line in log.read_text().splitlines()} if log.exists() else set()
    queue = []
    for number, mutant in enumerate(json.loads(MUTANTS.read_text())):
        if (number,) in done:
            continue
        place = located(mutant)
        chosen: list[str] = []
        if place is not None:
            ahead = 0.0
            for test in sorted(tests_at[place[:2]] - failed, key=lambda test: (num_lines[test], test)):
                if len(chosen) < MAX_TESTS and (not chosen or ahead + took_s[test] <= MAX_TESTS_S):
                    chosen.append(test)
                    ahead += took_s[test]
        queue.append((number, place, chosen))
    with multiprocessing.get_context("fork").Pool(2, initializer=_in_copy) as pool:
        for number, verdict in pool.imap_unordered(_verdict, queue):
            with log.open("a") as out:
                out.write(json.dumps([number, verdict]) + "\n")
    verdicts = [json.loads(line)[1] for line in log.read_text().splitlines()]
    there = [one for one in verdicts if one != "gone"]
    print(
        {kind: verdicts.count(kind) for kind in sorted(set(verdicts))}, f"killed {there.count('killed') / len(there):.1%} of {len(there)}"
    )


def _in_copy() -> None:
    """A process of the pool works in its own copy of the tree and has imported what every test imports, but the package."""
    copied = Path(tempfile.mkdtemp(prefix="mutants-"))
    shutil.copytree(
        ROOT, copied / "tree", ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", ".sentdist", "*.egg-info")
    )
    os.chdir(copied / "tree")
    sys.path[:] = [str(copied / "tree"), *(one for one in sys.path if one not in ("", str(ROOT)))]
    os.environ["PYTHONPATH"] = str(copied / "tree")
    compileall.compile_dir("sentdist", quiet=1)
    sys.dont_write_bytecode = True  # a mutant's bytecode would outlive it
    import datasets
    import pytest
    import torch
    import transformers

    del datasets, pytest, torch, transformers


def _verdict(task: tuple[int, tuple[str, int, str] | None, list[str]]) -> tuple[int, str]:
    """killed, survived, not run (no test runs its line) or gone (its code is not there any more)."""
    number, place, tests = task
    if place is None:
        return number, "gone"
    path = Path(place[0])
    text = path.read_text()
    while tests:
        path.write_text(place[2])
        failing = _first_failure(tests)
        path.write_text(text)
        if failing is None:
            return number, "survived"
        if failing == "hangs" or _first_failure([failing]) is None:  # a test that fails without the mutant says nothing of it
            return number, "killed"
        tests = tests[tests.index(failing) + 1 :]
    return number, "not run"


class _First:
    """Writes down the first test that fails."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.path.exists():
            self.path.write_text(report.nodeid.split("[")[0])


def _first_failure(tests: list[str]) -> str | None:
    """Runs tests in a process of their own until one fails; a failure to collect them counts for the first."""
    noted = Path("first-failure")
    noted.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        for name in [name for name in sys.modules if name.split(".")[0] in ("sentdist", "tests")]:
            del sys.modules[name]
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        import pytest

        arguments = [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
            "-m",
            "not nightly and not gpu",
            *tests,
        ]
        os._exit(int(pytest.main(arguments, plugins=[_First(noted.absolute())])))
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if os.waitstatus_to_exitcode(status) in (0, 5):
                return None
            return noted.read_text() if noted.exists() else tests[0]
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["draw"]:
            draw()
        case ["cover", folder]:
            cover(Path(folder))
        case ["part", folder, which, *files]:
            part(Path(folder), which, files)
        case ["run", folder]:
            run(Path(folder))
        case _:
            sys.exit(__doc__)
