"""A report on a terminal: no markup, no pictures, tables that fit; details are in the files."""

from __future__ import annotations

import io

from rich.console import Console

from sentdist.cli.terminal_page import terminal_page

PAGE = """# mine

ft is 2 \\* 3 points above [base](https://example.org/a_b), p &lt; 0.05.

| system | score |
|:--|--:|
| base | **84.87** [81.45, 88.28] |
| a\\|b &amp;lt; | 5 ± 1 |

<sub>[low, high\\]: an interval.</sub>

![Difference from base: p &lt; 0.05.](differences.svg)

Difference from base: p &lt; 0.05.

<details><summary>2 rows not run</summary>

- not run: recipe.yaml (x)

</details>

## Details

None.

## Citations

1. Somebody (2020).
"""


def _printed(markdown: str, *, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width)
    for part in terminal_page(markdown, width=width):
        console.print(part, highlight=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_page_is_read_without_markup() -> None:
    lines = [line.rstrip() for line in _printed(PAGE).splitlines()]
    assert lines[:3] == ["mine", "", "ft is 2 * 3 points above base (https://example.org/a_b), p < 0.05."]
    (base,), (other,) = ([line for line in lines if line.strip().startswith(name)] for name in ("base", "a|b &lt;"))
    assert base.endswith("  84.87 [81.45, 88.28]") and other.endswith(" 5 ± 1") and len(base) == len(other), "numbers stand right"
    after = [line for line in lines[lines.index(other) + 1 :] if line]
    assert after == ["2 rows not run", "- not run: recipe.yaml (x)"]


def test_a_table_that_is_too_wide_leaves_out_intervals_then_deviations() -> None:
    cells = " | ".join(f"**{score}.00** ± 0.50 ↑ [{score - 1}.00, {score + 1}.00]" for score in (70, 80))
    page = f"|  | n | a | b |\n|:--|--:|--:|--:|\n| RCL (phis={{0.01, 0.02}}) | 2 | {cells} |\n"
    for width, cell in ((100, "70.00 ± 0.50 ↑ [69.00, 71.00]"), (70, "70.00 ± 0.50 ↑   80.00"), (52, "70.00 ↑   80.00 ↑")):
        printed = _printed(page, width=width)
        assert cell in printed and "*" not in printed and len([line for line in printed.splitlines() if line.strip()]) == 3
