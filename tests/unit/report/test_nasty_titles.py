"""A whole report over titles made of nasty letters: tables keep their shape, no raw HTML, no formula, no crash, no file outside."""

from __future__ import annotations

import csv
import html.parser
import io
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from sentdist.plan.unroll import Plan
from sentdist.report.sweep_report import Report, report_sweep
from sentdist.stages.context import Context
from sentdist.store.sweep import load_sweep
from sentdist.tracking.pages import Link, sweep_note
from sentdist.tracking.sweep_summary import summary_csv, summary_rows
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

LETTERS = st.text(alphabet="|<>&*_`~[]()!#=+-@\\\"'$ab1. é", min_size=1, max_size=12)
PIECES = st.sampled_from(
    ["<script>alert(1)</script>", '=HYPERLINK("http://a")', "a|b", "@SUM(A1)", "[x](javascript:1)", "$\\frac$", "</td>", "# x", "-1+1"]
)
TITLES = st.tuples(st.one_of(LETTERS, PIECES), st.one_of(LETTERS, PIECES))
GITHUB = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> Path:
    root = tmp_path_factory.mktemp("nasty")
    write_data(root / "data")
    return root


@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(TITLES)
@example(("<script>alert(1)</script>|*a*", '=HYPERLINK("http://a")'))
@example(("@SUM(A1)|b|</td>", "# x $\\frac$ [x](javascript:1)"))
def test_a_report_holds_any_title(base: Path, tiny_encoder_dir: Path, titles: tuple[str, str]) -> None:
    plan, context, report = _reported(base, tiny_encoder_dir, titles)
    _check_markdown(report.markdown)
    for name, content in report.files.items():
        assert Path(name).name == name
        if name.endswith(".csv"):
            _check_csv(str(content))
    tags = _Tags()
    tags.feed(report.html)
    assert "script" not in tags.seen and not tags.handlers
    sweep = load_sweep(context.store, plan.recipe.name)
    records = sweep.records(context.store)
    _check_csv(summary_csv(summary_rows(sweep, records)))
    links = {trial.key: Link(name=trial.name, kind="scores", url="https://a/b") for trial in sweep.trials}
    _check_markdown(sweep_note(sweep, records, trials=links, views=[], store="s"))


def _reported(base: Path, encoder: Path, titles: tuple[str, str]) -> tuple[Plan, Context, Report]:
    values = tiny_values(encoder, seeds=[0, 1])
    methods = values["methods"]
    assert isinstance(methods, dict)
    del methods["rcl"], methods["entropy"]
    for name, title in zip(methods, titles, strict=True):
        methods[name] = {**methods[name], "title": f"{name} {title}"[::-1] if len(title) % 2 else f"{title} {name}"}  # type: ignore[dict-item]
    values["about"] = "\n\n# ".join(titles)
    plan, context = tiny_plan(values, data=base / "data", store=Path(tempfile.mkdtemp(dir=base)))
    fill_store(context.store, plan, noise=lambda trial: 1.0, num_items={"stsb": 40})
    return plan, context, report_sweep(context.store, plan.recipe.name)


def _check_markdown(text: str) -> None:
    tokens = GITHUB.parse(text)
    assert "html_block" not in {token.type for token in tokens}
    inline = [child for token in tokens if token.type == "inline" for child in token.children or []]
    assert {child.content for child in inline if child.type == "html_inline"} <= {"<sub>", "</sub>", "<ins>", "</ins>"}
    addresses = {child.attrs["href"] for child in inline if child.type == "link_open"}
    assert not any(str(address).startswith("javascript") for address in addresses)
    rows: list[int] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append(0)
        elif token.type in ("th_open", "td_open"):
            rows[-1] += 1
        elif token.type == "table_close":
            assert len(set(rows)) == 1
            rows = []
    tables = [block for block in re.split(r"\n\n+", text) if block.startswith("|")]
    assert len([token for token in tokens if token.type == "table_open"]) == len(tables)
    assert all(len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1 for table in tables)


def _check_csv(text: str) -> None:
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert len({len(row) for row in rows}) == 1
    for cell in (cell for row in rows for cell in row):
        assert not re.match(r"\s*[=+\-@\t\r]", cell) or re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?|-?(inf|nan)", cell), cell


class _Tags(html.parser.HTMLParser):
    """The tags of a page, and attributes that run code."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.handlers += [name for name, value in attrs if name.startswith("on") or str(value).startswith("javascript")]
