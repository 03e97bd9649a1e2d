"""Each function of the kernels is declared once, in a protocol: both modules take the same arguments, by the same names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[3] / "sentdist/learning/kernels"


def _signatures(body: list[ast.stmt]) -> dict[str, str]:
    """Of functions, without `self`: arguments, defaults and what is returned, as text."""
    found = {}
    for function in body:
        if isinstance(function, ast.FunctionDef):
            function.args.args = [argument for argument in function.args.args if argument.arg != "self"]
            found[function.name] = f"({ast.unparse(function.args)}) -> {ast.unparse(function.returns) if function.returns else ''}"
    return found


@pytest.mark.parametrize(("module", "protocols"), [("cpp_kernels", ["Kernels"]), ("triton_kernels", ["Kernels", "TritonKernels"])])
def test_a_module_of_kernels_has_the_functions_of_the_protocol_word_for_word(module: str, protocols: list[str]) -> None:
    interface = ast.parse((KERNELS / "interface.py").read_text()).body
    declared: dict[str, str] = {}
    for one in interface:
        if isinstance(one, ast.ClassDef) and one.name in protocols:
            declared |= _signatures(one.body)
    found = _signatures(ast.parse((KERNELS / f"{module}.py").read_text()).body)
    assert len(declared) >= 10 and {name: found.get(name) for name in declared} == declared
