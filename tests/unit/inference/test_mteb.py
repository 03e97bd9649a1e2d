"""mteb's tasks on our encoders: mteb's scores are ours, its files are written, mistakes are named."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.errors import DataError
from sentdist.evaluation.sts import paired_cosines, score_similarities
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


def test_that_a_task_has_a_newer_version_is_said_once(
    planted_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """mteb would also warn, which is an error in tests."""
    from sentdist.inference import mteb_tasks
    from tests.support.tiny_mteb import TinySts

    monkeypatch.setattr(TinySts, "superseded_by", "TinySts.v2")
    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(planted_encoder_dir)))
    mteb_tasks.score_on_mteb(loaded, mteb_tasks.mteb_tasks([STS]), tmp_path)
    assert sum("superseded by 'TinySts.v2'" in record.message for record in caplog.records) == 1


def test_every_different_text_is_embedded_once(planted_encoder_dir: Path) -> None:
    from sentdist.inference.mteb_tasks import MtebEncoder

    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(planted_encoder_dir)))
    batches = [{"text": ["a dog runs", "a cat sleeps"]}, {"text": ["a dog runs"]}]
    embeddings = MtebEncoder(loaded).encode(batches, task_metadata=None)
    np.testing.assert_array_equal(embeddings[0], embeddings[2])
    np.testing.assert_allclose(embeddings, loaded.embed(["a dog runs", "a cat sleeps", "a dog runs"]), atol=1e-6)


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mteb", "STSBenchmrk", "--out", "out"), "Did you mean: 'STSBenchmark'"),
        (("--mteb", "tests.support.tiny_mteb:Nothing", "--out", "out"), "AttributeError"),
        (("--mteb", "tests.support.tiny_mteb:PAIRS", "--out", "out"), "a class of mteb's AbsTask"),
        (("--mteb", STS), "found --mteb without --out; expected --mteb TASK --out DIR, or --tasks. Say where to write: --out DIR."),
        (("--out", "out"), "found --out without --mteb"),
        (("--tasks", "sts", "--out", "out"), "found --out without --mteb"),
        (("--mteb", STS, "--tasks", "sts", "--out", "out"), "found --tasks beside --mteb"),
        (("--mteb", STS, "--workers", "2", "--out", "out"), "found --workers beside --mteb"),
        (("--mteb", "tests.support.tiny_mteb:TinyImages", "--out", "out"), "found image; expected texts"),
        (("--mteb", STS, "--out", "file"), "--out file: found a file; expected a folder"),
    ],
)
def test_mistakes_are_named_before_anything_is_encoded(
    arguments: tuple[str, ...], message: str, planted_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    answer = _call(planted_encoder_dir, *arguments)
    assert answer.exit_code == 2 and message in answer.stderr, answer.output
    assert not (tmp_path / "out").exists()


def test_without_the_extra_there_is_one_error_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    from sentdist.inference.mteb_tasks import mteb_tasks

    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(DataError, match=r"no package mteb.*pip install 'sentdist\[mteb\]'"):
        mteb_tasks([STS])


def test_a_benchmark_stands_for_its_tasks() -> None:
    from sentdist.inference.mteb_tasks import mteb_tasks

    names = [task.metadata.name for task in mteb_tasks(["MTEB(eng, v2)"])]
    assert len(names) > 30 and "STSBenchmark" in names


def test_benchmarks_are_listed_only_for_what_is_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """To list them mteb makes all of their tasks, which takes seconds."""
    import mteb

    from sentdist.inference.mteb_tasks import mteb_tasks

    asked: list[None] = []
    listed = mteb.get_benchmarks
    monkeypatch.setattr(mteb, "get_benchmarks", lambda: asked.append(None) or listed())
    assert [task.metadata.name for task in mteb_tasks(["STS12, STSBenchmark"])] == ["STS12", "STSBenchmark"]
    assert not asked
    with pytest.raises(DataError, match='"STS0"'):
        mteb_tasks(["STS12,STS0"])
    assert asked
