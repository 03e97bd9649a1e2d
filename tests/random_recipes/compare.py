"""Comparisons at random: tasks of all kinds, views, seeds, sweeps, folds and people's own files; all are planned, built and reported."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import yaml
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.plan.stage import Json
from tests.random_recipes.draw import Draw, Values, draw_recipe, some
from tests.random_recipes.own_tables import FAQ, FILES, TASKS
from tests.support.tiny_data import tiny_plan

CHOOSING = ("sts", "retrieval", "pairs", "reranking", "triplets")
MOST_TRIES = 10
GRIDS: tuple[Values, ...] = (
    {"training.learning_rate": [1e-3, 3e-4]},
    {"training.batch_size": [4, 8]},
    {"encoder.layers": [1, 2]},
    {"training.epochs": [1, 2], "training.learning_rate": [1e-3, 3e-4]},
)
NO_NUMBER = re.compile(r"(?<![\w-])(nan|inf|None|\[\]|\{\})(?![\w-])")


def draw_comparison(draw: Draw, encoders: Sequence[Path]) -> Values:
    """A recipe of `draw_recipe`, scored and compared in ways of its own."""
    values = draw_recipe(draw, encoders)
    methods = values["methods"]
    assert isinstance(methods, dict)
    trained = [name for name in methods if name.startswith("m")]
    tasks = [f"{kind}=my/{kind}-test" for kind in draw.sample(TASKS, draw.choice([0, 1, 2, 4]))]
    if draw.random() < 0.25:
        values["corpus"] = {"kind": "own", "file": draw.choice(list(FILES)), "held_out": {"dev": 0.2, "test": 0.2}}
        tasks.append("own")
    elif draw.random() < 0.2:
        values["corpus"] = {"source": FAQ, "split": None, "document_field": "text"}
        values["folds"] = {"num": 3, "by": draw.choice(["query", "answer"])}
        tasks.append(f"retrieval={FAQ}")
    if draw.random() < 0.3:
        methods["read"] = {"of": draw.choice(trained), "view": {"postprocess": draw.choice(["center", "whiten"])}}
    if draw.random() < 0.3:
        methods["floor"] = {"lexical": draw.choice(["word_overlap", "bm25"])}
    if draw.random() < 0.2:
        methods[draw.choice(trained)]["view"] = {"channels": draw.choice([[0, 8], [8, 32]])}  # type: ignore[index, call-overload]
    values["evaluation"] = {"tasks": [*tasks, *(["stsb"] if not tasks or draw.random() < 0.5 else [])], **_evaluation(draw, values)}
    if draw.random() < 0.7:
        chosen = draw.choice(["stsb-dev", "stsb-dev+sts=my/sts-dev", *(f"{kind}=my/{kind}-dev" for kind in CHOOSING)])
        dev: Json = tasks[-1] if tasks and tasks[-1] in ("own", f"retrieval={FAQ}") and draw.random() < 0.7 else chosen
        values["selection"] = {"task": dev, "every_fraction": draw.choice([0.5, 1.0]), **some(draw, 0.2, limit=[10])}
    return {
        **values,
        "seeds": draw.choice([[0], [0, 1], [0, 1, 2]]),
        **some(draw, 0.8, baseline=[*trained, "base"]),
        **some(draw, 0.2, headline=trained),
        **(_search(draw) if draw.random() < 0.2 else some(draw, 0.3, sweep=GRIDS, confirm_seeds=[2])),
    }


def _search(draw: Draw) -> Values:
    """A few suggestions, in rungs or to the end."""
    axes: Values = {"training.learning_rate": {"log": [1e-4, 1e-2], "steps": 5}, "training.batch_size": {"choice": [4, 8]}}
    space: Json = {name: axes[name] for name in draw.sample(list(axes), draw.choice([1, 2]))}
    halving = some(draw, 0.5, halving=[{"rungs": [0.5, 1.0], "keep": 0.5}])
    return {"search": {"suggest": draw.choice(["random", "grid"]), "samples": draw.choice([2, 3]), "space": space, **halving}}


def _evaluation(draw: Draw, values: Values) -> Values:
    found = some(draw, 0.2, max_length=[8], precision=["bf16"])
    if draw.random() < 0.2:
        values["targets"] = {"tagger": "tests.support.tiny_tagger:tag", "num_words": 20}
        found["probes"] = {"num_sentences": 24, "num_words": 5, "channels": draw.choice([[8, 24], [16, 16]])}
    if isinstance(values["corpus"], dict) and values["corpus"].get("kind") == "relations" and draw.random() < 0.5:
        found["links"] = {}
    return found


def compare(draw: Draw, data: Path, encoders: Sequence[Path], folder: Path) -> str:
    """What became of a comparison: "refused", or "reported"; AssertionError or another for what is wrong."""
    store, recipe = folder / "store", folder / "random.yaml"
    values = planned_comparison(draw, data, encoders, folder)
    if values is None:
        return "refused"
    _called("sweep", recipe, "--local", "--data", data, "--store", store)
    plan, context = tiny_plan(values, data=data, store=store)
    assert "search" in values or all(context.store.get(stage) is not None for stage in plan.stages)
    printed = _called("report", "random", "--store", store, "--out", folder / "report")
    check_report(folder / "report", printed)
    _called("report", "random", "--store", store, "--out", folder / "again")
    files = {path.name: path.read_bytes() for path in (folder / "report").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (folder / "again").iterdir()}, "a report is a function of the records"
    for card in store.rglob("README.md"):
        assert not (wrong := NO_NUMBER.search(card.read_text())), f"{card}: {wrong}"
    return "reported"


def planned_comparison(draw: Draw, data: Path, encoders: Sequence[Path], folder: Path) -> Values | None:
    """The first of some that `plan` takes, as `folder`/random.yaml; None where it refuses all."""
    recipe = folder / "random.yaml"
    for _ in range(MOST_TRIES):
        values = draw_comparison(draw, encoders)
        recipe.write_text(yaml.safe_dump(values))
        if _called("plan", recipe, "--data", data, "--store", folder / "store", may_refuse=True):
            return values
    return None


def check_report(folder: Path, printed: str) -> None:
    """Its pictures and tables can be read, and no place of a number has none."""
    assert not (wrong := NO_NUMBER.search(printed)), printed[max(0, wrong.start() - 100) : wrong.end() + 100]
    for path in folder.iterdir():
        match path.suffix:
            case ".svg":
                ElementTree.parse(path)
            case ".csv" | ".md":
                text = path.read_text()
                assert not (wrong := NO_NUMBER.search(text)), f"{path.name}: {text[max(0, wrong.start() - 100) : wrong.end() + 100]}"


def _called(*arguments: object, may_refuse: bool = False) -> str:
    """What a command prints, "" where it refuses and may; it must end well."""
    with contextlib.redirect_stderr(io.StringIO()):
        answer = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    if may_refuse and answer.exit_code == 2:
        return ""
    assert answer.exit_code == 0, f"{arguments[0]}: {answer.output[-2000:]}\n{answer.exception!r}"
    return answer.stdout
