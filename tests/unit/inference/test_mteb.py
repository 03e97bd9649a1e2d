"""mteb's tasks on our encoders: mteb's scores are ours, its files are written, mistakes are named."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.evaluation.metrics import paired_cosines
from sentdist.evaluation.sts import score_similarities
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.plan.specs import EncoderUse

pytestmark = pytest.mark.skipif(find_spec("mteb") is None, reason="the extra mteb is not installed")  # importing it takes seconds

STS, FAQ = "tests.support.tiny_mteb:TinySts", "tests.support.tiny_mteb:TinyFaq"


def _call(encoder: Path, *arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["evaluate", str(encoder), *map(str, arguments)], env={"COLUMNS": "200"})


def test_mteb_scores_as_we_do_and_writes_its_own_files(planted_encoder_dir: Path, tmp_path: Path) -> None:
    from tests.support.tiny_mteb import PAIRS

    answer = _call(planted_encoder_dir, "--mteb", f"{STS},{FAQ}", "--out", tmp_path / "out", "--store", tmp_path / "store")
    assert answer.exit_code == 0, answer.output
    files = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out" / "results").rglob("*.json")}
    assert {"TinySts", "TinyFaq", "model_meta"} <= files.keys()
    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(planted_encoder_dir), pooling="mean"))
    first, second, gold = map(list, zip(*PAIRS, strict=True))
    cosines = paired_cosines(loaded.embed(first), loaded.embed(second), where="pairs")
    expected = score_similarities(cosines, gold, ["all"] * len(gold))
    (scores,) = files["TinySts"]["scores"]["test"]
    assert expected.spearman is not None and 100 * scores["cosine_spearman"] == pytest.approx(expected.spearman, abs=1e-3)
    assert files["TinyFaq"]["scores"]["test"][0]["ndcg_at_10"] == 1.0, "each query has the words of its document"
    assert files["model_meta"]["name"] == f"sentdist/{planted_encoder_dir.name}"
    lines = {line.split()[0]: line.split()[-1] for line in answer.output.splitlines() if line.strip()}
    assert lines["TinyFaq"] == "100.00" and float(lines["TinySts"]) == pytest.approx(expected.spearman, abs=0.01)


def test_results_that_are_there_are_not_run_again_and_other_settings_are_others(
    planted_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentdist.inference import mteb_tasks

    embedded: list[int] = []
    real = mteb_tasks.MtebEncoder.encode
    monkeypatch.setattr(mteb_tasks.MtebEncoder, "encode", lambda *asked, **options: embedded.append(1) or real(*asked, **options))
    for expected, max_length in ((2, None), (2, None), (4, 4)):
        loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(planted_encoder_dir), max_length=max_length))
        mteb_tasks.score_on_mteb(loaded, mteb_tasks.mteb_tasks([STS]), tmp_path)
        assert len(embedded) == expected
    assert len(list((tmp_path / "results").rglob("TinySts.json"))) == 2
    shutil.rmtree(tmp_path / "predictions")  # as of a version that kept none
    mteb_tasks.score_on_mteb(loaded, mteb_tasks.mteb_tasks([STS]), tmp_path)
    assert len(embedded) == 6 and len(list((tmp_path / "predictions").rglob("TinySts_predictions.json"))) == 1


def test_every_different_text_is_embedded_once(planted_encoder_dir: Path) -> None:
    from sentdist.inference.mteb_tasks import MtebEncoder

    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(planted_encoder_dir)))
    batches = [{"text": ["a dog runs", "a cat sleeps"]}, {"text": ["a dog runs"]}]
    embeddings = MtebEncoder(loaded).encode(batches, task_metadata=None)
    np.testing.assert_array_equal(embeddings[0], embeddings[2])
    np.testing.assert_allclose(embeddings, loaded.embed(["a dog runs", "a cat sleeps", "a dog runs"]), atol=1e-6)


def test_mistakes_are_named_before_anything_is_encoded(planted_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, message in [
        (("--mteb", "STSBenchmrk", "--out", "out"), "Did you mean: 'STSBenchmark'"),
        (("--mteb", "tests.support.tiny_mteb:PAIRS", "--out", "out"), "a class of mteb's AbsTask"),
        (("--mteb", STS), "found --mteb without --out; expected --mteb TASK --out DIR, or --tasks. Say where to write: --out DIR."),
        (("--out", "out"), "found --out without --mteb"),
        (("--mteb", STS, "--tasks", "sts", "--out", "out"), "found --tasks beside --mteb"),
        (("--mteb", "tests.support.tiny_mteb:TinyImages", "--out", "out"), "found image; expected texts"),
    ]:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "file").touch()
        answer = _call(planted_encoder_dir, *arguments)
        assert answer.exit_code == 2 and message in answer.stderr, answer.output
        assert not (tmp_path / "out").exists()
