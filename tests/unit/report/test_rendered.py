"""A rendered report, of methods whose titles are made of nasty letters: whole, with its parts linked, and nothing in it runs."""

from __future__ import annotations

import csv
import html.parser
import io
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from jinja2 import UndefinedError
from markdown_it import MarkdownIt

from sentdist.report.block import Block
from sentdist.report.sweep_report import Report, report_sweep
from sentdist.report.templating import render
from sentdist.store.record import Record
from sentdist.store.sweep import SweepRecord, load_sweep
from sentdist.tracking.notes import Link, sweep_note
from sentdist.tracking.sweep_summary import summary_csv, summary_rows
from tests.support.pages import html_part, markdown_part
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

TITLES = ("<script>alert(1)</script>|*a*</td> @SUM(A1)", '=HYPERLINK("http://a") [x](javascript:1) `_~ $\\frac$')
GITHUB = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


class Made(NamedTuple):
    sweep: SweepRecord
    records: dict[str, Record]
    report: Report


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> Made:
    root = tmp_path_factory.mktemp("nasty")
    values = tiny_values(tiny_encoder_dir, seeds=[0, 1])
    methods = values["methods"]
    assert isinstance(methods, dict)
    del methods["rcl"], methods["entropy"]
    for name, title in zip(methods, TITLES, strict=True):
        methods[name] = {**methods[name], "title": f"{title} {name}"}  # type: ignore[dict-item]
    values["about"] = "\n\n# ".join(TITLES)
    plan, context = tiny_plan(values, data=write_data(root / "data"), store=root / "store")
    fill_store(context.store, plan, noise=lambda trial: 1.0, num_items={"stsb": 40})
    sweep = load_sweep(context.store, plan.recipe.name)
    return Made(sweep=sweep, records=sweep.records(context.store), report=report_sweep(context.store, plan.recipe.name))


def test_markdown_has_whole_tables_and_no_html_of_others(made: Made) -> None:
    links = {trial.key: Link(name=trial.name, kind="scores", url="https://a/b") for trial in made.sweep.trials}
    for text in (made.report.markdown, sweep_note(made.sweep, made.records, trials=links, views=[], store="s")):
        tokens = GITHUB.parse(text)
        assert "html_block" not in {token.type for token in tokens}
        inline = [child for token in tokens if token.type == "inline" for child in token.children or []]
        assert {child.content for child in inline if child.type == "html_inline"} <= {"<sub>", "</sub>", "<ins>", "</ins>"}
        assert not any(str(child.attrs["href"]).startswith("javascript") for child in inline if child.type == "link_open")
        tables = [block for block in re.split(r"\n\n+", text) if block.startswith("|")]
        assert len([token for token in tokens if token.type == "table_open"]) == len(tables)
        assert all(len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1 for table in tables)


def test_sheets_have_equal_rows_and_no_formulas(made: Made) -> None:
    sheets = [str(content) for name, content in made.report.files.items() if name.endswith(".csv")]
    for text in (*sheets, summary_csv(summary_rows(made.sweep, made.records))):
        rows = list(csv.reader(io.StringIO(text, newline="")))
        assert len({len(row) for row in rows}) == 1
        for cell in (cell for row in rows for cell in row):
            assert not re.match(r"\s*[=+\-@\t\r]", cell) or re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?|-?(inf|nan)", cell), cell


def test_a_page_runs_nothing_loads_nothing_and_is_balanced(made: Made) -> None:
    class Tags(html.parser.HTMLParser):
        open: list[str] = []  # noqa: RUF012
        runs: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.runs.extend(name for name, value in attrs if name.startswith("on") or str(value).startswith("javascript"))
            if tag not in ("meta", "br"):
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    tags = Tags()
    tags.feed(made.report.html)
    assert not tags.open and not tags.runs
    assert not re.search(r"<script|<link|<img|@import|src=", made.report.html)
    assert made.report.html.count("<svg ") == made.report.html.count('<figure class="drawing">') >= 2


def test_every_reference_of_a_page_leads_to_one_place(made: Made) -> None:
    identifiers = re.findall(r'\bid="([^"]+)"', made.report.html)
    assert len(identifiers) == len(set(identifiers))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', made.report.html)) <= set(identifiers)
    assert {name for name in made.report.files if Path(name).name != name} == set(), "no file outside"


def test_commands_in_sentences_are_code_and_nothing_else_is() -> None:
    block = Block(title="t", said=["Type `sentdist leaks RECIPE` now, not `<b>` or *stars*."])
    assert "Type <code>sentdist leaks RECIPE</code> now, not `&lt;b&gt;` or *stars*." in html_part("block", block)
    assert "Type `sentdist leaks RECIPE` now, not \\`&lt;b&gt;\\` or \\*stars\\*." in markdown_part("block", block)
    with pytest.raises(UndefinedError, match="page"):
        render("sweep.html.jinja")
