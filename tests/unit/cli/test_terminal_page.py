"""A report on a terminal: no markup, no pictures, tables that fit; details are in the files."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sentdist.cli.summary import terminal_page

REPORTS = sorted((Path(__file__).parents[3] / "infra" / "benchmarks").glob("*/report.md"))
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


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.parent.name)
def test_real_reports_have_no_markup_and_keep_their_numbers(path: Path) -> None:
    markdown = path.read_text(encoding="utf-8")
    printed = _printed(markdown, width=1000)
    assert not re.search(r"</?[a-z]+>|&[a-z]+;|\]\(|\\[^\w\s]|^#|\*\*", printed, re.MULTILINE)
    numbers = re.compile(r"\d+\.\d+")
    shown = re.sub("!.*|^Figure .*", "", markdown.partition("\n## Citations\n")[0])
    rows = {number for line in shown.splitlines() if line.startswith("|") for number in numbers.findall(line)}
    assert rows <= set(numbers.findall(printed))


def test_columns_stand_as_their_rule_says_and_bold_is_what_stands_between_asterisks() -> None:
    page = "| a | b | c |\n|:--|--:|---|\n| x | 1 | **2** of 3 |\n| longer | 100 | 4 |\n"
    (table,) = terminal_page(page, width=80)
    assert isinstance(table, Table) and [column.justify for column in table.columns] == ["left", "right", "right"]
    (line,) = terminal_page("one **two** three **four**\n", width=80)
    assert isinstance(line, Text) and line.plain == "one two three four"
    assert [(line.plain[span.start : span.end], span.style) for span in line.spans] == [("two", "bold"), ("four", "bold")]


def test_no_two_blank_lines_follow_each_other_and_words_of_a_picture_go_with_it() -> None:
    page = "# mine\n\n| a |\n|--:|\n| 1 |\n\n\n![Said *of* it.](a.svg)\n\nSaid *of* it.\n\nSaid *of* another.\n"
    parts = list(terminal_page(page, width=80))
    texts = ["table" if isinstance(part, Table) else part.plain for part in parts]
    assert texts == ["mine", "", "table", "Said *of* another."]
    close = list(terminal_page("one\n| a |\n|--:|\n| 1 |\n\n\ntwo\n", width=80))
    assert ["table" if isinstance(part, Table) else part.plain for part in close] == ["one", "table", "two"]
