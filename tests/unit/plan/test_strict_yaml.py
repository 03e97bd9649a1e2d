"""No recipe and no `--set` takes more than seconds or a message of more than a line, whatever is in it."""

from __future__ import annotations

import time
from importlib.util import find_spec, module_from_spec
from pathlib import Path

import pytest
import yaml

from sentdist.errors import RecipeError
from sentdist.plan.recipe import load_recipe
from sentdist.plan.wording import DEEPEST, MOST_BYTES, MOST_VALUES, StrictLoader, parsed_yaml
from tests.support.machine_speed import slower_than_reference
from tests.support.planning import small_values

RECIPES = sorted((Path(__file__).parents[3] / "rayjobs" / "recipes").glob("*.yaml"))
BOMB = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))])
MERGES = "\n".join(["m0: &m0 {k: 1}", *(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}" for n in range(1, 9))])
HOSTILE = {
    "alias to itself": "a: &a [*a]",
    "mapping in itself": "a: &a {b: *a}",
    "alias bomb": BOMB,
    "bomb of merges": MERGES,
    "deep list": "a: " + "[" * 100_000,
    "deep blocks": "\n".join(" " * n + "a:" for n in range(200)),
    "million values": f"seeds: [{', '.join(['1'] * 300_000)}]",
    "long number": "limit: " + "9" * 900_000,
    "hexadecimal number": "limit: 0x" + "f" * 900_000,
    "above 64 bits": "limit: 1000000000000000000000000000000",
    "long text": "name: " + "x" * (MOST_BYTES + 1),
    "no such day": "about: 2020-13-45",
    "python object": "a: !!python/object/apply:os.system [ls]",
    "not base64": "a: !!binary '*'",
    "half a letter": 'about: "\\ud800"',
    "nul": "name: a\0b",
    "key twice": "a: 1\na: 2",
    "list as key": "? [1]\n: 2",
    "no end": 'a: "',
    "no such anchor": "a: *b",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_yaml_is_refused_at_once_in_a_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    slower = slower_than_reference()
    for load in (lambda: load_recipe(path), lambda: load_recipe(_small(tmp_path), [f"sweep={text}"])):
        began = time.process_time()
        with pytest.raises(RecipeError) as caught:
            load()
        assert time.process_time() - began < 2 * slower
        assert len(str(caught.value)) < 1200 and len(str(caught.value).splitlines()) == 1


def test_what_people_write_is_read_as_before() -> None:
    text = "base: &base {lr: 5e-5, n: 1_000}\nlist: [*base, *base]\ndeep: " + "[" * 20 + "]" * 20
    values = parsed_yaml(text, where="w", expected="e", remedy="r")
    assert isinstance(values, dict)
    assert values["list"] == [{"lr": 5e-5, "n": 1000}] * 2
    assert parsed_yaml(str(2**63 - 1), where="w", expected="e", remedy="r") == 2**63 - 1
    assert parsed_yaml(f"[{'1,' * (MOST_VALUES - 2)}]", where="w", expected="e", remedy="r") == [1] * (MOST_VALUES - 2)
    assert DEEPEST > 20


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"seeds": list(range(15_000)), "sweep": {"training.epochs": list(range(1, 4000))}}, "trials"),
        ({"sweep": {f"training.{name}": list(range(1, 2000)) for name in ("epochs", "batch_size", "max_length")}}, "trials"),
        ({"folds": {"num": 10**9}}, "folds.num"),
        ({"seeds": [1] * 15_000}, "expected each seed once"),
        ({"x" * 500_000: 1}, "unknown key"),
        ({"evaluation": {"tasks": ["y" * 500_000]}}, "is no task"),
        ({"methods": {f"m{n}": {"objective": {"name": "rcll"}} for n in range(3000)}}, "And 2,992 more"),
    ],
    ids=["seeds × grid", "grid", "folds", "same seed", "long key", "long task", "many mistakes"],
)
def test_absurd_sizes_are_refused_at_once_in_a_line(changes: dict[str, object], found: str, tmp_path: Path) -> None:
    from sentdist.plan.unroll import grid_points

    path, slower = _small(tmp_path, **changes), slower_than_reference()
    began = time.process_time()
    with pytest.raises(RecipeError, match=found) as caught:
        list(grid_points(load_recipe(path)))
    assert time.process_time() - began < 8 * slower  # most of which PyYAML takes for 20,000 values
    assert len(str(caught.value)) < 1200 and len(str(caught.value).splitlines()) == 1


def _small(folder: Path, **changes: object) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(small_values(**changes), width=10**9))  # type: ignore[arg-type]
    return path


def test_it_reads_alike_where_pyyaml_has_no_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = [parsed_yaml(path.read_text(), where="recipe", expected="", remedy="") for path in RECIPES]
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    slow = module_from_spec(spec := find_spec("sentdist.plan.wording"))  # type: ignore[arg-type]
    spec.loader.exec_module(slow)  # type: ignore[union-attr]
    assert yaml.parser.Parser in slow.StrictLoader.__mro__ and yaml.parser.Parser not in StrictLoader.__mro__
    assert [slow.parsed_yaml(path.read_text(), where="recipe", expected="", remedy="") for path in RECIPES] == quick
    for text in ("a: &a [*a]", "a: 1\na: 2", 'a: "'):
        with pytest.raises(RecipeError):
            slow.parsed_yaml(text, where="recipe", expected="", remedy="")
