"""No recipe and no `--set` takes more than seconds or a message of more than a line, whatever is in it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from sentdist.errors import RecipeError
from sentdist.plan.recipe import load_recipe
from sentdist.plan.strict_yaml import DEEPEST, MOST_BYTES, MOST_VALUES, parsed_yaml
from tests.support.machine_speed import slower_than_reference
from tests.support.planning import small_values

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


def test_hostile_yaml_is_refused_at_once_in_a_line(tmp_path: Path) -> None:
    for text in HOSTILE.values():
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


def _small(folder: Path, **changes: object) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(small_values(**changes), width=10**9))  # type: ignore[arg-type]
    return path
