"""Folders of mteb's predictions: their scores are mteb's own, and two of them are compared by our test."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner, Result

import sentdist
from sentdist.cli import app
from sentdist.errors import DataError

pytestmark = pytest.mark.skipif(find_spec("mteb") is None, reason="the extra mteb is not installed")  # importing it takes seconds

KINDS = ("TinySts", "TinyApart", "TinyTwoLanguages", "TinyPairs", "TinyFaq", "TinyTopics", "TinyClusters")
CLASSES = ",".join(f"tests.support.tiny_mteb:{name}" for name in (*KINDS, "TinyDrawnClusters"))


class _Run(NamedTuple):
    folder: Path
    scores: dict[str, float]


@pytest.fixture(scope="module")
def runs(tiny_roberta_dir: Path, tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[_Run, _Run]:
    """Two encoders that mteb has run on a task of each kind."""
    return tuple(_run(encoder, tmp_path_factory.mktemp(encoder.name)) for encoder in (tiny_roberta_dir, tiny_encoder_dir))


def _run(encoder: Path, out: Path) -> _Run:
    from sentdist.inference.mteb_tasks import mteb_tasks, score_on_mteb
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.plan.specs import EncoderUse

    loaded = LoadedEncoder.load(EncoderUse(checkpoint=str(encoder)))
    return _Run(folder=out, scores={one.task: one.score for one in score_on_mteb(loaded, mteb_tasks([CLASSES]), out)})


def _compare(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "250"})


def test_scores_of_items_make_mtebs_own_scores(runs: tuple[_Run, _Run], tmp_path: Path) -> None:
    from sentdist.inference.mteb_items import Predictions, predicted_scores

    folders = [Predictions.of(str(run.folder)) for run in runs]
    found = predicted_scores((folders[0], folders[1]), [CLASSES], tmp_path)
    assert tuple(found.measures) == KINDS
    assert found.notes == (
        "Not compared: TinyDrawnClusters, for its score is a mean over random draws of its rows, which mteb does not keep.",
    )
    for ours, run in zip(found.both, runs, strict=True):
        assert ours.scores == {name: pytest.approx(run.scores[name], abs=1e-3) for name in KINDS}  # mteb rounds nDCG to 5 digits


def test_two_folders_are_compared_as_encoders_are(runs: tuple[_Run, _Run]) -> None:
    answer = _compare(runs[0].folder, runs[1].folder, "--mteb", CLASSES, "--bayes")
    assert answer.exit_code == 0, answer.output
    rows = {line.split()[0]: line.split() for line in answer.output.splitlines() if line.startswith(("  Tiny", "  Avg"))}
    for name in KINDS:
        shown = [float(text) for text in rows[name][3:6]]
        expected = [runs[0].scores[name], runs[1].scores[name], runs[0].scores[name] - runs[1].scores[name]]
        assert shown == pytest.approx(expected, abs=0.02), name
    assert rows["TinyTwoLanguages"][2] == "19", "both languages"
    assert "Avg" not in rows and "No average: Spearman, " in answer.output, "of correlations, precisions and shares there is no mean"
    as_json = json.loads(_compare(runs[0].folder, runs[1].folder, "--mteb", CLASSES, "--format", "json").stdout)
    assert [line["task"] for line in as_json["lines"]] == list(KINDS)
    assert "Second opinion" in answer.output and "Not compared: TinyDrawnClusters" in answer.output
    assert "Not tested: TinyFaq (both vary alike" in answer.output
    assert f"{runs[0].folder} against " in answer.output.replace("\n", " ")


def test_the_interval_is_that_of_the_encoders_compared_by_themselves(
    runs: tuple[_Run, _Run], tiny_roberta_dir: Path, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    """The same pairs, scored by us and by mteb."""
    from tests.support.tiny_mteb import APART

    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(f"{a}\t{b}\t{c}\n" for a, b, c in APART))
    ours = _compare(tiny_roberta_dir, tiny_encoder_dir, "--tasks", f"sts={tmp_path}/pairs.tsv", "--store", tmp_path / "store")
    theirs = _compare(runs[0].folder, runs[1].folder, "--mteb", "tests.support.tiny_mteb:TinyApart")
    assert ours.exit_code == theirs.exit_code == 0, ours.output + theirs.output
    lines = [line.split() for one in (ours, theirs) for line in one.output.splitlines()]
    (of_ours,), (of_mteb,) = ([line[1:] for line in lines if line[:1] == [name]] for name in ("sts-pairs-tsv", "TinyApart"))
    assert of_ours == of_mteb and len(of_ours) == 9, "measure, items, scores, difference, interval, p"


def test_an_encoder_is_run_by_mteb_on_the_tasks_of_the_other_side(
    runs: tuple[_Run, _Run], tiny_roberta_dir: Path, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    asked = ("--mteb", "tests.support.tiny_mteb:TinyApart", "--format", "json")
    folders = json.loads(_compare(runs[0].folder, runs[1].folder, *asked).stdout)["lines"]
    mixed = _compare(runs[0].folder, tiny_encoder_dir, "--out", tmp_path / "mixed", *asked)
    both = _compare(tiny_roberta_dir, tiny_encoder_dir, "--out", tmp_path / "both", *asked)
    assert folders == json.loads(mixed.stdout)["lines"] == json.loads(both.stdout)["lines"], mixed.stderr + both.stderr
    assert len(list((tmp_path / "both" / "results").rglob("TinyApart.json"))) == 2
    kept = next((tmp_path / "both" / "predictions").glob("*roberta*"))
    again = _compare(kept, tiny_roberta_dir, "--other-pooling", "cls", "--out", tmp_path / "both", *asked[:2])
    assert again.exit_code == 0 and "TinyApart" in again.output, again.output


def test_a_python_program_compares_folders_as_the_command_does(runs: tuple[_Run, _Run], tiny_roberta_dir: Path) -> None:
    first, second = (run.folder for run in runs)
    printed = json.loads(_compare(first, second, "--mteb", CLASSES, "--format", "json").stdout)
    found = sentdist.compare(first, str(second), mteb=CLASSES)
    assert [asdict(line) for line in found.lines] == printed["lines"] and found.sentence == printed["sentence"]
    assert found.notes[-len(printed["notes"]) :] == tuple(printed["notes"])
    assert any("Not compared: TinyDrawnClusters" in note for note in found.notes)
    for call, said in (
        (lambda: sentdist.compare(first, first), "twice; expected two encoders"),
        (lambda: sentdist.compare(first, second, "sts"), "tasks beside predictions of mteb; expected tasks of mteb. Name them by mteb="),
        (lambda: sentdist.compare(first, tiny_roberta_dir), "predictions of mteb beside an encoder"),
        (lambda: sentdist.compare(tiny_roberta_dir, "minilm-l6", mteb="STSBenchmark"), "mteb beside encoders"),
        (lambda: sentdist.compare(first, second, mteb=[]), "compare: mteb: found an empty list"),
        (lambda: sentdist.compare("", tiny_roberta_dir), "found no name"),
    ):
        with pytest.raises(sentdist.DataError, match=re.escape(said)):
            call()


def test_mistakes_are_named(runs: tuple[_Run, _Run], tiny_roberta_dir: Path, tmp_path: Path) -> None:
    first, second = (run.folder for run in runs)
    bare = tmp_path / "bare"
    shutil.copytree(first / "results", bare / "results")
    for arguments, message in (
        ((first, first), "twice"),
        ((first, tiny_roberta_dir), f"found {tiny_roberta_dir} beside predictions of mteb; expected two folders"),
        ((first, tiny_roberta_dir, "--out", second / "results" / "x.json"), 'found "TinyApart"'),
        ((first, tiny_roberta_dir, "--mteb", "Nosuch", "--out", tmp_path / "out"), 'found "Nosuch"'),
        ((first, tiny_roberta_dir, "--pooling", "cls", "--out", tmp_path / "out"), "found --pooling beside predictions of mteb"),
        ((tiny_roberta_dir, tiny_roberta_dir, "--mteb", "STSBenchmark"), "found --mteb without --out"),
        ((tiny_roberta_dir, tiny_roberta_dir, "--out", tmp_path / "out"), "found --out without --mteb"),
        ((first, second, "--out", tmp_path / "out"), "found --out beside predictions of mteb"),
        ((bare, second), "results of mteb without predictions"),
        ((first, second, "--tasks", "sts"), "found --tasks beside predictions of mteb"),
        ((first, second, "--precision", "bf16"), "found --precision beside predictions of mteb"),
        ((first, second), 'found "TinyApart"'),  # a task of one's own is named by its class
        ((first, second, "--mteb", "STSBenchmark"), "none of STSBenchmark in both folders"),
        ((tmp_path, second), "predictions of 2 encoders"),
    ):
        if arguments[0] == tmp_path:
            for number, run in enumerate(runs):
                shutil.copytree(run.folder / "predictions", tmp_path / "both" / str(number))
        answer = _compare(*arguments)
        assert answer.exit_code == 2 and message in answer.stderr.replace("\n", " "), (arguments, answer.output)


@pytest.fixture
def broken(runs: tuple[_Run, _Run], tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(runs[0].folder / "predictions", tmp_path / "broken")
    yield next((tmp_path / "broken").rglob("TinySts_predictions.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON"),
        ("[]", "found other JSON"),
        (json.dumps({"default": {"test": {"cosine_scores": [0.5], "similarity_scores": None}}}), "1 of them for 10 rows"),
        (json.dumps({"default": {"test": {}}}), "KeyError"),
        (json.dumps({"fr": {"test": {"cosine_scores": [0.5]}}}), "expected the same subsets"),
    ],
)
def test_broken_predictions_say_where(broken: Path, text: str, message: str, runs: tuple[_Run, _Run], tmp_path: Path) -> None:
    from sentdist.inference.mteb_items import Predictions, predicted_scores

    broken.write_text(text)
    folders = Predictions.of(str(broken.parent)), Predictions.of(str(runs[1].folder))
    with pytest.raises(DataError, match=message) as raised:
        predicted_scores(folders, ["tests.support.tiny_mteb:TinySts"], tmp_path / "items")
    assert str(broken.parent) in str(raised.value)


def test_parts_are_matched_by_their_names(runs: tuple[_Run, _Run], tmp_path: Path) -> None:
    """mteb writes subsets in the order in which they were run."""
    from sentdist.inference.mteb_items import Predictions, predicted_scores

    shutil.copytree(runs[0].folder / "predictions", tmp_path / "other")
    path = next((tmp_path / "other").rglob("TinyTwoLanguages_predictions.json"))
    values = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(values.items()))))
    asked = ["tests.support.tiny_mteb:TinyTwoLanguages"]
    first, other = Predictions.of(str(runs[0].folder)), Predictions.of(str(path.parent))
    found = predicted_scores((first, other), asked, tmp_path / "items")
    assert found.both[0].scores == found.both[1].scores
    for one, another in zip(*(scored.items["TinyTwoLanguages"] for scored in found.both), strict=True):
        assert one.read_bytes() == another.read_bytes()
    path.write_text(json.dumps({"en": values["en"]}))
    with pytest.raises(DataError, match=r"found de/test, en/test in .*; en/test in .*; expected the same subsets"):
        predicted_scores((first, Predictions.of(str(path.parent))), asked, tmp_path / "again")
