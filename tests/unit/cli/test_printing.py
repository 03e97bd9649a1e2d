"""How answers look on a terminal and in a log: numbers, progress, reports; and what a job of a cluster is given."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from sentdist.cli import printing, summary
from sentdist.cli.printing import sentence_progress
from sentdist.cli.recipes import job_command
from sentdist.cli.summary import terminal_page
from sentdist.errors import StoreError
from sentdist.inference.opening import IN_A_JOB, store_root
from sentdist.run.events import StageEvent
from sentdist.run.progress import SweepProgress


def test_a_log_has_no_bar_and_is_shown_how_far_it_is_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had one line for as many minutes as it took."""
    now = [100.0]
    monkeypatch.setattr(printing, "monotonic", lambda: now[0])
    with sentence_progress("encoding", 10_000) as advance:
        for seconds, done in ((20, 1000), (11, 2000), (28, 3000), (2, 4000)):
            now[0] += seconds
            advance(done)
    assert capsys.readouterr() == (
        "",
        "encoding: 2,000 of 10,000 sentences, 65 a second\nencoding: 4,000 of 10,000 sentences, 66 a second\n",
    )
    with sentence_progress("encoding", None) as advance:
        now[0] += 40
        advance(2000)
        now[0] += 40
        advance(2000, 4000)
    assert capsys.readouterr() == ("", "encoding: 2,000 sentences, 50 a second\nencoding: 2,000 of 4,000 sentences, 25 a second\n")


def test_a_table_has_the_share_that_is_done_and_a_row_for_some_of_what_runs() -> None:
    now = [1000.0]
    progress = SweepProgress({f"k{number}": 1.0 for number in range(20)}, clock=lambda: now[0])
    for number in range(10):
        progress.line(StageEvent(key=f"k{number}", kind="train", label=f"rcl {number}", what="started"))
    for number in range(10, 15):
        progress.line(StageEvent(key=f"k{number}", kind="corpus", label="toy", what="finished", seconds=1.0))
    now[0] += 30.0
    file = io.StringIO()
    Console(file=file, width=160).print(summary.progress_table(progress))
    head, *rows, last = [line.rstrip() for line in file.getvalue().splitlines() if line.strip()]
    assert head.startswith("5 of 20 stages") and "25 %" in head and head.endswith("time left: known after the first training")
    assert len(rows) == summary.MOST_ROWS and last == "and 2 more"
    assert "rcl 0" in rows[0] and rows[0].endswith(" 30 s"), rows[0]


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


def test_a_page_is_read_without_markup_details_and_pictures() -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(terminal_page(PAGE), highlight=False)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert "ft is 2 * 3 points above base" in printed and "a|b &lt;" in printed and "84.87 [81.45, 88.28]" in printed
    assert not any(part in printed for part in ("**", "![", "Difference from base", "<sub>", "an interval", "None.", "Somebody"))


def test_the_command_for_a_job_names_a_recipe_that_the_job_has() -> None:
    assert shlex.split(job_command(Path("my recipes/a.yaml"), ["about=it's mine"])) == [
        "rayjobs.sweep",
        "my recipes/a.yaml",
        "--set",
        "about=it's mine",
    ]
    assert job_command(Path(".sentdist/tuned/faq/recipe.yaml"), []) == f"rayjobs.sweep {Path.cwd()}/.sentdist/tuned/faq/recipe.yaml"


def test_a_job_takes_no_store_in_the_folder_that_ray_throws_away(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_root("results") == "results"
    monkeypatch.setenv(IN_A_JOB, "{}")
    for kept in ("/shared/store", "s3://bucket/store", "~/store"):
        assert store_root(kept) == kept
    with pytest.raises(StoreError, match="Ray deletes"):
        store_root("results")
