"""The speed benchmark: peers take turns, both sides score alike, parts that are not measured again stay."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from rayjobs.benchmarks import out_file, out_folder
from rayjobs.benchmarks.interleaved import Peer, Sample, interleave
from rayjobs.benchmarks.speed_page import speed_page


def counting(start: float) -> Iterator[Sample]:
    """Seconds that say which sample of which peer they are, and the process."""
    for number in range(100):
        yield {"seconds": start + number, "process": float(os.getpid())}


def test_peers_take_turns_in_processes_of_their_own_and_the_first_turn_does_not_count() -> None:
    found = interleave({"low": Peer(run=counting, work=0.0), "high": Peer(run=counting, work=50.0)}, rounds=3, units=2)
    assert [sample["seconds"] for sample in found["low"].samples] == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert found["high"].median("seconds") == 54.5
    assert found["low"].median("process") != found["high"].median("process") != os.getpid()
    assert 0.0 < found["low"].peak_gib < 8.0


def test_the_page_has_ratios_scores_and_their_largest_difference() -> None:
    machine = {"date": "2026-01-01", "threads": "2"}
    figures = [
        {"side": side, "precision": precision, "seconds": seconds, "peak_gib": 1.0, "rounds": 3, "scores": {"sts12": score}}
        for side, precision, seconds, score in (
            ("sentdist", "fp32", 10.0, 72.0), ("sentence-transformers", "fp32", 25.0, 72.004),
            ("sentdist", "bf16", 5.0, 71.9), ("sentence-transformers", "bf16", 10.0, 72.0),
        )
    ]  # fmt: skip
    page = speed_page({"sts": {"machine": machine, "command": "measure", "figures": figures}})
    assert "| sentdist | bf16 | 5.0 | **5.00×** | **2.00×** | 1.0 |" in page
    assert "| sentdist | fp32 | 10.0 | **2.50×** | **2.50×** | 1.0 |" in page
    assert "| sentence-transformers | fp32 | 25.0 | – | – | 1.0 |" in page
    assert "0.004 in fp32, 0.100 in bf16" in page
    assert "Training" not in page


def test_a_place_for_figures_is_made_before_they_are_measured(tmp_path: Path) -> None:
    """Six minutes of measurements were lost for want of a folder."""
    assert out_folder(str(tmp_path / "new" / "folder")).is_dir()
    assert out_file(str(tmp_path / "other" / "page.md")).parent.is_dir()
    types = [
        next((ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "type"), "text")
        for file in Path(out_folder.__code__.co_filename).parent.glob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and call.args and ast.unparse(call.args[0]) == "'--out'"
    ]
    assert len(types) == 8
    assert set(types) == {"out_folder", "out_file"}
