"""A rendered report, of methods whose titles are made of nasty letters: whole, with its parts linked; and reports that are kept."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from markdown_it import MarkdownIt

from sentdist.errors import StoreError
from sentdist.recipe.stages import Scores, Train
from sentdist.report.encoder_card import encoder_card
from sentdist.report.sweep_report import Report, keep_report, report_sweep
from sentdist.report.sweep_rows import sweep_rows
from sentdist.store.record import Record
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import SweepRecord, load_sweep
from sentdist.tracking.runs import SweepRuns
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
    for text in (made.report.markdown,):
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
    for text in sheets:
        rows = list(csv.reader(io.StringIO(text, newline="")))
        assert len({len(row) for row in rows}) == 1
        for cell in (cell for row in rows for cell in row):
            assert not re.match(r"\s*[=+\-@\t\r]", cell) or re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?|-?(inf|nan)", cell), cell


def test_every_reference_of_a_page_leads_to_one_place(made: Made) -> None:
    identifiers = re.findall(r'\bid="([^"]+)"', made.report.html)
    assert len(identifiers) == len(set(identifiers))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', made.report.html)) <= set(identifiers)
    assert {name for name in made.report.files if Path(name).name != name} == set(), "no file outside"


def test_a_kept_report_is_in_the_store(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    fill_store(context.store, plan, noise=lambda trial: 1.5, num_items={"stsb": 40}, skip=lambda trial: trial.key == plan.trials[-1].key)
    page = Path(keep_report(context.store, "tiny", tmp_path / "out"))
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {path.name for path in page.parent.iterdir()} and {"report.md", "table1.csv", "learning.png"} <= names
    assert "Not finished" in page.read_text() and page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("kind", [Train, Scores])
def test_what_is_not_understood_is_said_and_the_rest_is_reported(
    kind: type[Train | Scores], tmp_path: Path, tiny_encoder_dir: Path
) -> None:
    values = tiny_values(tiny_encoder_dir, seeds=[0, 1])
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    fill_store(context.store, plan, noise=lambda trial: 1.5, num_items={"stsb": 60})
    last = plan.trials[-1].scores
    changed = last if kind is Scores else last.encoder
    assert isinstance(changed, kind)
    file = tmp_path / "store" / changed.place / "record.json"
    record = Record.read(file.read_bytes())
    fields = record.stage["fields"]
    assert isinstance(fields, dict)
    file.write_bytes(record.model_copy(update={"stage": record.stage | {"fields": fields | {"of_tomorrow": 1}}}).sealed)

    store = ArtifactStore(tmp_path / "store")
    made = report_sweep(store, "tiny")
    assert made.markdown.count("Of another version") == 1 and changed.place in made.markdown
    sweep = load_sweep(store, "tiny")
    records = sweep.records(store)
    found = sweep_rows(sweep, store, records)
    assert [trial.key for trial in found.unfinished] == ([changed.key] if kind is Scores else [])
    assert SweepRuns.of_records(sweep, store, records).parameters[plan.trials[-1].key]["seed"] == "1"
    artifact = store.at(changed.place)
    assert artifact is not None
    if kind is Train:
        with pytest.raises(StoreError, match="another version"):
            encoder_card(store, artifact, name="me/encoder", licence=None, language=(), has_unit_length=False)
