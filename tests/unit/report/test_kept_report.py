"""A sweep that is submitted again keeps its report; whatever the report would tell otherwise has it drawn again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sentdist.plan.unroll import Plan
from sentdist.report import kept_report, sweep_report
from sentdist.report.kept_report import MADE_OF, keep_report
from sentdist.report.sweep_drawings import sweep_drawings
from sentdist.store.store import ArtifactStore
from tests.support.synthetic_sweeps import fill_store
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

Keep = Callable[..., dict[str, bytes]]
SWEEP = "tiny"


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are files like the others, and take most of the time."""
    monkeypatch.setattr(sweep_report, "sweep_drawings", lambda *args, **named: ())


@pytest.fixture
def filled(tiny_encoder_dir: Path, tmp_path: Path) -> tuple[Plan, ArtifactStore]:
    """A sweep of which the last trial is missing."""
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    _fill(context.store, plan, lacks=plan.trials[-1].key)
    return plan, context.store


def _fill(store: ArtifactStore, plan: Plan, *, lacks: str = "") -> None:
    fill_store(store, plan, noise=lambda trial: 1.5, num_items={"stsb": 40}, skip=lambda trial: trial.key == lacks)


@pytest.fixture
def keep(filled: tuple[Plan, ArtifactStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keep:
    """The files that `keep_report` gives, which are always those in the store; raises where a report is drawn that should not be."""
    _, store = filled
    numbers = iter(range(100))
    may_draw = [True]
    draw = sweep_report.report_sweep

    def drawn(*args: object, **named: object) -> object:
        assert may_draw[0], "drawn again"
        may_draw[0] = False
        return draw(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(sweep_report, "report_sweep", drawn)

    def kept(*, is_drawn: bool, **links: str) -> dict[str, bytes]:
        may_draw[0] = is_drawn
        folder = tmp_path / f"scratch{next(numbers)}"
        folder.mkdir()
        page = keep_report(store, SWEEP, folder, links=links)
        assert may_draw[0] is False, "not drawn again"
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        in_store = Path(page).parent
        assert {path.name: path.read_bytes() for path in in_store.iterdir() if path.name != MADE_OF} == files
        return files

    return kept


def test_a_report_of_the_same_records_is_drawn_once(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_report, "sweep_drawings", sweep_drawings)
    first = keep(is_drawn=True)
    assert {"report.html", "report.md", "table1.csv", "learning.png", "learning.svg"} <= first.keys()
    assert keep(is_drawn=False) == first


def test_what_a_report_would_tell_otherwise_has_it_drawn_again(keep: Keep, filled: tuple[Plan, ArtifactStore]) -> None:
    plan, store = filled
    before = keep(is_drawn=True)
    _fill(store, plan)
    whole = keep(is_drawn=True)
    assert whole["report.md"] != before["report.md"]
    keep(is_drawn=True, trials="http://elsewhere")
    keep(is_drawn=False, trials="http://elsewhere")
    folder = Path(store.files.uri(f"reports/{SWEEP}"))
    (folder / "table1.csv").unlink()
    assert keep(is_drawn=True) == whole
    for text in ("", "{", "[]", '{"made_of": "x", "files": ["report.html"]}'):
        (folder / MADE_OF).write_text(text)
        assert keep(is_drawn=True) == whole, text


def test_a_report_that_was_cut_off_while_it_was_written_is_not_taken_for_whole(
    keep: Keep, filled: tuple[Plan, ArtifactStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store = filled
    first = keep(is_drawn=True)
    write_folder = store.files.write_folder

    def full(folder: Path, place: str) -> str:
        (folder / "report.html").write_text("half")
        write_folder(folder, place)
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(store.files, "write_folder", full)
        patched.setattr(kept_report, "code_digest", lambda: "of another version")
        with pytest.raises(OSError, match="full"):
            keep(is_drawn=True)
    assert keep(is_drawn=True) == first, "of the first version again, whose files are written over"
