"""mteb's tasks on our encoders: mteb's scores are ours, and its files are written."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.evaluation.sts import paired_cosines, spearman
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.recipe.specs import EncoderUse

pytestmark = pytest.mark.skipif(find_spec("mteb") is None, reason="the extra mteb is not installed")  # importing it takes seconds

OURS = "tests.support.tiny_mteb"
STS = f"{OURS}:TinySts"


def _call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "250"})


def _loaded(encoder: Path, **use: object) -> LoadedEncoder:
    return LoadedEncoder.load(EncoderUse(checkpoint=str(encoder), **use))  # type: ignore[arg-type]


def test_mteb_scores_as_we_do_and_writes_its_own_files(planted_encoder_dir: Path, tmp_path: Path) -> None:
    from tests.support.tiny_mteb import PAIRS

    answer = _call("evaluate", planted_encoder_dir, "--mteb", f"{STS},{OURS}:TinyFaq", "--out", tmp_path / "out", "--store", tmp_path / "s")
    assert answer.exit_code == 0, answer.output
    files = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out" / "results").rglob("*.json")}
    loaded = _loaded(planted_encoder_dir, pooling="mean")
    first, second, gold = map(list, zip(*PAIRS, strict=True))
    cosines = paired_cosines(loaded.embed(first), loaded.embed(second), where="pairs")
    expected = spearman(cosines, np.asarray(gold, dtype=float))
    assert expected is not None and 100 * files["TinySts"]["scores"]["test"][0]["cosine_spearman"] == pytest.approx(expected, abs=1e-3)
    assert files["TinyFaq"]["scores"]["test"][0]["ndcg_at_10"] == 1.0, "each query has the words of its document"
    assert files["model_meta"]["name"] == f"sentdist/{planted_encoder_dir.name}"
    lines = {line.split()[0]: line.split()[-1] for line in answer.output.splitlines() if line.strip()}
    assert lines["TinyFaq"] == "100.00" and float(lines["TinySts"]) == pytest.approx(expected, abs=0.01)


def test_mistakes_are_named(tiny_roberta_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for arguments, message in (
        (("--mteb", f"{OURS}:PAIRS", "--out", "out"), "a subclass of mteb's AbsTask"),
        (("--mteb", STS), "found --mteb without --out"),
        (("--out", "out"), "found --out without --mteb"),
        (("--mteb", STS, "--tasks", "sts", "--out", "out"), "--tasks: found no tasks without --mteb"),
        (("--mteb", f"{OURS}:TinyImages", "--out", "out"), "found image; expected texts"),
        (("--mteb", STS, "--out", "file"), "--out file: found FileExistsError"),
    ):
        answer = _call("evaluate", tiny_roberta_dir, *arguments)
        assert answer.exit_code == 2 and message in answer.stderr.replace("\n", " "), (arguments, answer.output)
    assert not (tmp_path / "out").exists()
