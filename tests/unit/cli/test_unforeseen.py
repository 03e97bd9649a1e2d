"""An unexpected error ends a command in one line and keeps its traceback; exit codes tell mistakes from failures."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.errors import DataError
from sentdist.report import sweep_report
from sentdist.store import sweep


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _fails_by(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*given: object, **named: object) -> object:
        raise error

    monkeypatch.setattr(sweep, "load_sweep", fail)
    monkeypatch.setattr(sweep_report, "load_sweep", fail)


@pytest.mark.parametrize("error", [RuntimeError("bad\nworse"), EOFError(), KeyError("x"), RecursionError("deep"), MemoryError()])
def test_one_line_and_where_the_traceback_is(error: Exception, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fails_by(monkeypatch, error)
    answer = CliRunner().invoke(app, ["report", "demo", "--store", str(tmp_path)])
    assert answer.exit_code == 1 and len(answer.stderr.splitlines()) == 1
    assert type(error).__name__ in answer.stderr and "Aborted" not in answer.stderr
    named = re.search(r"The traceback is in (\S+)\.$", answer.stderr.strip())
    assert named is not None
    kept = Path(named[1])
    assert kept.is_relative_to(cache) and stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "Traceback (most recent call last)" in kept.read_text() and "load_sweep" in kept.read_text()


def test_the_traceback_finds_another_place_where_there_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    _fails_by(monkeypatch, RuntimeError("bad"))
    answer = CliRunner().invoke(app, ["report", "demo", "--store", str(tmp_path)])
    kept = Path(answer.stderr.strip().removesuffix(".").rpartition(" ")[2])
    assert answer.exit_code == 1 and "RuntimeError: bad" in kept.read_text()
    kept.unlink()


def test_debug_shows_it(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fails_by(monkeypatch, RuntimeError("bad"))
    answer = CliRunner().invoke(app, ["--debug", "report", "demo", "--store", str(tmp_path)])
    assert answer.exit_code == 1 and isinstance(answer.exception, RuntimeError) and not cache.exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [(DataError(where="w", found="f", expected="e", remedy="r"), 2), (BrokenPipeError(), 1), (KeyboardInterrupt(), 130)],
)
def test_other_ends_keep_their_exit_codes(
    error: BaseException, code: int, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fails_by(monkeypatch, error)
    answer = CliRunner().invoke(app, ["report", "demo", "--store", str(tmp_path)])
    assert answer.exit_code == code and not cache.exists()
