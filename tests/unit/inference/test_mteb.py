"""mteb's tasks on our encoders: mteb's scores are ours, its files are written, and folders of its predictions are compared by our test."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner, Result

import sentdist
from sentdist.cli import app
from sentdist.errors import DataError
from sentdist.evaluation.sts import paired_cosines, score_similarities
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.recipe.specs import EncoderUse

pytestmark = pytest.mark.skipif(find_spec("mteb") is None, reason="the extra mteb is not installed")  # importing it takes seconds

OURS = "tests.support.tiny_mteb"
STS = f"{OURS}:TinySts"
KINDS = ("TinySts", "TinyApart", "TinyTwoLanguages", "TinyPairs", "TinyFaq", "TinyTopics", "TinyClusters")
CLASSES = ",".join(f"{OURS}:{name}" for name in (*KINDS, "TinyDrawnClusters"))


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
    expected = score_similarities(cosines, gold, ["all"] * len(gold)).spearman
    assert expected is not None and 100 * files["TinySts"]["scores"]["test"][0]["cosine_spearman"] == pytest.approx(expected, abs=1e-3)
    assert files["TinyFaq"]["scores"]["test"][0]["ndcg_at_10"] == 1.0, "each query has the words of its document"
    assert files["model_meta"]["name"] == f"sentdist/{planted_encoder_dir.name}"
    lines = {line.split()[0]: line.split()[-1] for line in answer.output.splitlines() if line.strip()}
    assert lines["TinyFaq"] == "100.00" and float(lines["TinySts"]) == pytest.approx(expected, abs=0.01)


class _Run(NamedTuple):
    folder: Path
    scores: dict[str, float]


@pytest.fixture(scope="module")
def runs(tiny_roberta_dir: Path, tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[_Run, _Run]:
    """Two encoders that mteb has run on a task of each kind."""
    from sentdist.inference.mteb_tasks import mteb_tasks, score_on_mteb

    def run(encoder: Path) -> _Run:
        out = tmp_path_factory.mktemp(encoder.name)
        return _Run(folder=out, scores={one.task: one.score for one in score_on_mteb(_loaded(encoder), mteb_tasks([CLASSES]), out)})

    return run(tiny_roberta_dir), run(tiny_encoder_dir)


def test_scores_of_items_make_mtebs_own_scores(runs: tuple[_Run, _Run], tmp_path: Path) -> None:
    from sentdist.inference.mteb_items import Predictions, predicted_scores

    first, second = (Predictions.of(str(run.folder)) for run in runs)
    found = predicted_scores((first, second), [CLASSES], tmp_path / "items")
    assert tuple(found.measures) == KINDS and "Not compared: TinyDrawnClusters" in found.notes[0]
    for ours, run in zip(found.both, runs, strict=True):
        assert ours.scores == {name: pytest.approx(run.scores[name], abs=1e-3) for name in KINDS}  # mteb rounds nDCG to 5 digits
    shutil.copytree(runs[0].folder / "predictions", tmp_path / "other")
    path = next((tmp_path / "other").rglob("TinyTwoLanguages_predictions.json"))
    values = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(values.items()))))  # mteb writes subsets in the order in which they were run
    reordered = predicted_scores((first, Predictions.of(str(path.parent))), [f"{OURS}:TinyTwoLanguages"], tmp_path / "again")
    assert reordered.both[0].scores == reordered.both[1].scores


def test_two_folders_are_compared_as_encoders_are(runs: tuple[_Run, _Run]) -> None:
    first, second = (run.folder for run in runs)
    answer = _call("compare", first, second, "--tasks", CLASSES)
    assert answer.exit_code == 0, answer.output
    rows = {line.split()[0]: line.split() for line in answer.output.splitlines() if line.startswith("  Tiny")}
    for name in KINDS:
        one, other = (run.scores[name] for run in runs)
        assert [float(text) for text in rows[name][3:6]] == pytest.approx([one, other, one - other], abs=0.02), name
    printed = json.loads(_call("compare", first, second, "--tasks", CLASSES, "--format", "json").stdout)
    found = sentdist.compare(first, str(second), CLASSES)
    assert [asdict(line) for line in found.lines] == printed["lines"] and found.sentence == printed["sentence"]


def test_mistakes_are_named(runs: tuple[_Run, _Run], tiny_roberta_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    first, second = (run.folder for run in runs)
    shutil.copytree(first / "results", tmp_path / "bare" / "results")
    encoder = tiny_roberta_dir
    for arguments, message in (
        (("evaluate", encoder, "--mteb", f"{OURS}:PAIRS", "--out", "out"), "a subclass of mteb's AbsTask"),
        (("evaluate", encoder, "--mteb", STS), "found --mteb without --out"),
        (("evaluate", encoder, "--out", "out"), "found --out without --mteb"),
        (("evaluate", encoder, "--mteb", STS, "--tasks", "sts", "--out", "out"), "--tasks: found no tasks without --mteb"),
        (("evaluate", encoder, "--mteb", f"{OURS}:TinyImages", "--out", "out"), "found image; expected texts"),
        (("evaluate", encoder, "--mteb", STS, "--out", "file"), "--out file: found FileExistsError"),
        (("compare", first, first), "twice"),
        (("compare", first, encoder), "predictions of mteb beside an encoder; expected two folders"),
        (("compare", "bare", second), "results of mteb without predictions"),
        (("compare", first, second, "--tasks", "STSBenchmark"), "none of STSBenchmark in both folders"),
    ):
        answer = _call(*arguments)
        assert answer.exit_code == 2 and message in answer.stderr.replace("\n", " "), (arguments, answer.output)
    assert not (tmp_path / "out").exists()
    for call, said in ((lambda: sentdist.compare(first, encoder), "predictions of mteb beside an encoder"),):
        with pytest.raises(DataError, match=re.escape(said)):
            call()


def test_broken_predictions_say_where(runs: tuple[_Run, _Run], tmp_path: Path) -> None:
    from sentdist.inference.mteb_items import Predictions, predicted_scores

    shutil.copytree(runs[0].folder / "predictions", tmp_path / "broken")
    broken = next((tmp_path / "broken").rglob("TinySts_predictions.json"))
    for text, message in [
        ("{", "expected JSON"),
        ("[]", "found other JSON"),
        (json.dumps({"default": {"test": {"cosine_scores": [0.5], "similarity_scores": None}}}), "1 of them for 10 rows"),
        (json.dumps({"fr": {"test": {"cosine_scores": [0.5]}}}), "expected the same subsets"),
    ]:
        broken.write_text(text)
        folders = Predictions.of(str(broken.parent)), Predictions.of(str(runs[1].folder))
        with pytest.raises(DataError, match=message) as raised:
            predicted_scores(folders, [STS], tmp_path / "items")
        assert str(broken.parent) in str(raised.value)
