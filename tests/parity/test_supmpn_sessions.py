"""SupMPN from a recipe to scores: all variants, alone and with regulators, shared by two ranks, in micro-batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sentdist.data.corpus import OpenedCorpus
from sentdist.learning.engine import TorchEngine
from sentdist.plan.corpora.groups import GroupedCorpus
from sentdist.plan.stage import Json
from sentdist.plan.stages import Scores, Train
from sentdist.plan.unroll import Plan
from sentdist.report.sweep_report import report_sweep
from sentdist.stages.context import Context, folder_of
from sentdist.stages.local import build_here
from sentdist.stages.train import TrainSession
from sentdist.store.sweep import save_sweep, sweep_record
from tests.parity.processes import run_in_processes
from tests.support.building import run_local
from tests.support.groups_data import groups, supmpn_values, write_inference
from tests.support.tiny_data import tiny_plan

pytestmark = pytest.mark.parity

# float32 sums in another order; a dozen steps of AdamW at 1e-3 keep the difference near the last digits
TOLERANCE = {"rtol": 1e-4, "atol": 1e-6}


def training_of(plan: Plan, method: str) -> Train:
    found = next(trial.scores.encoder for trial in plan.trials if trial.method == method)
    assert isinstance(found, Train)
    return found


def test_the_whole_recipe_and_its_report(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = tiny_plan(
        supmpn_values(tiny_encoder_dir, paper="supmpn"), data=write_inference(tmp_path / "data"), store=tmp_path / "store"
    )
    artifacts = {artifact.record.key: artifact.record for artifact in run_local(plan, context)}
    scores = {trial.method: artifacts[trial.scores.key].results["stsb"] for trial in plan.trials if isinstance(trial.scores, Scores)}
    assert list(scores) == ["base", "simcse", "supmpn", "released", "deleted", "regulated"]
    assert all(isinstance(score, float) for score in scores.values())
    # Each of them trains something else; the released mask adds 2 to denominators of about e²⁰, perhaps too little to change a weight.
    trained = [stage for stage in plan.stages if isinstance(stage, Train) and stage is not training_of(plan, "released")]
    assert len({artifacts[stage.key].digests["model.safetensors"] for stage in trained}) == len(trained) == 6
    assert len([stage for stage in plan.stages if isinstance(stage, GroupedCorpus)]) == 3
    assert len([stage for stage in plan.stages if isinstance(stage, Train)]) == 7  # two entropy encoders
    history = (folder_of(training_of(plan, "supmpn"), context) / "history.jsonl").read_text()
    assert "loss" in history
    save_sweep(context.store, sweep_record(plan))
    report = report_sweep(context.store, "tiny-supmpn")
    for beside in (
        "Table 2: Semantic textual similarity",
        "Table A1: What takes the place of missing positives",
        "| RD | paper |",
    ):
        assert beside in report.markdown
    assert "10.3390/app12199659" in str(report.files["citations.bib"])


def test_rows_of_a_grouped_corpus_and_what_the_record_says(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    plan, context = tiny_plan(supmpn_values(tiny_encoder_dir), data=write_inference(tmp_path / "data"), store=tmp_path / "store")
    stage = training_of(plan, "supmpn").corpus
    record = build_here(stage, context).record
    corpus = OpenedCorpus.open(folder_of(stage, context))
    assert corpus.column_names == ("anchor", "positive_1", "positive_2", "positive_3", "negative_1", "negative_2")
    assert record.results["num_rows"] == corpus.num_rows == 40
    premises = record.results["premises"]
    assert isinstance(premises, dict)
    assert (premises["num_premises"], premises["num_left_out"], premises["with_both"]) == (48, 8, [40, 8, 0, 0, 0])


def train(values: dict[str, Json], data: Path, store: Path, method: str, **runtime: Json) -> dict[str, torch.Tensor]:
    """The parameters of a method's encoder after training on this rank's share."""
    plan, context = tiny_plan(values | {"runtime": runtime}, data=data, store=store)
    stage = training_of(plan, method)
    build_here(stage.corpus, context)
    return parameters_after(stage, context)


def parameters_after(stage: Train, context: Context) -> dict[str, torch.Tensor]:
    session = TrainSession(stage, context, make_engine=TorchEngine, bank=None)
    for _ in session.events():
        pass
    return {name: tensor.detach().clone() for name, tensor in session.engine.weights().items()}


def share_of(rank: int, world_size: int, stage: Train, context: Context) -> dict[str, torch.Tensor]:
    return parameters_after(stage, context)


def assert_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        if not name.endswith("attention.self.key.bias"):  # softmax ignores it: its true gradient is 0, and AdamW scales rounding up
            torch.testing.assert_close(found[name], expected[name], **TOLERANCE)


@pytest.mark.parametrize("method", ["supmpn", "released"])
def test_two_ranks_train_like_one(tmp_path: Path, tiny_encoder_dir: Path, method: str) -> None:
    values, data = supmpn_values(tiny_encoder_dir, selection=None), write_inference(tmp_path / "data")
    alone = train(values, data, tmp_path / "store", method)
    plan, context = tiny_plan(values, data=data, store=tmp_path / "store")
    first, _ = run_in_processes(share_of, 2, training_of(plan, method), context)  # weights are gathered on the first rank
    assert_close(first, alone)


def test_micro_batches_train_like_one_pass(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values, data = supmpn_values(tiny_encoder_dir, selection=None), write_inference(tmp_path / "data")
    whole = train(values, data, tmp_path / "store", "supmpn")
    assert_close(train(values, data, tmp_path / "store", "supmpn", micro_batch=7), whole)


def test_one_positive_and_one_negative_is_supervised_simcse(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    values = supmpn_values(tiny_encoder_dir, selection=None, corpus=groups(1, 1))
    data = write_inference(tmp_path / "data")
    assert_close(train(values, data, tmp_path / "store", "supmpn"), train(values, data, tmp_path / "store", "simcse"))
