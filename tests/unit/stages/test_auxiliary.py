"""Auxiliary tasks and masked language modelling from the recipe to the record: in one process, on the tiny data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sentdist.learning.checkpoint import DevScore
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import TorchEngine
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.stages.train import TrainSession
from tests.support.mask_tokens import maskable_encoder
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

CONTRASTIVE: Json = {"projected": True, "objective": {"name": "info_nce", "temperature": 0.05}}


def auxiliary(**fields: Json) -> dict[str, Json]:
    return {"name": "sum", "terms": [CONTRASTIVE, {"weight": 0.01, "objective": {"name": "auxiliary", **fields}}]}


def values(encoder: Path | str = "minilm-l6", **methods: Json) -> dict[str, Json]:
    return tiny_values(
        Path(encoder),
        corpus={"source": "nli/triplets", "columns": ["sent0", "sent0"]},
        evaluation={"tasks": ["stsb"], "probes": {"num_sentences": 48, "num_words": 10}},
        targets={"tagger": "tests.support.tiny_tagger:tag", "num_words": 12},
        methods=methods
        or {
            "base": {},
            "simcse": {"objective": {"name": "info_nce", "temperature": 0.05}, "encoder": {"pooling": "cls_mlp_train_only"}},
            "masked": {"objective": {"name": "sum", "terms": [CONTRASTIVE, {"weight": 0.1, "objective": {"name": "mlm"}}]}},
            "tasks": {"objective": auxiliary(adversary="none")},
            "adversaries": {"objective": auxiliary(classifier_learning_rate=0.01)},
            "reversal": {"objective": auxiliary(adversary="reversal", warmup_steps=3, channels=[8, 24])},
            "tags": {"of": "adversaries", "view": {"channels": [0, 5]}},
            "words": {"of": "adversaries", "view": {"channels": [5, 32]}},
        },
        baseline=None,
        paper="auxiliary",
    ) | {"encoder": {"checkpoint": str(encoder), "pooling": "cls"}}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return maskable_encoder(tmp_path_factory.mktemp("maskable"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


def test_a_training_resumes_with_its_adversaries(encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adversaries, masks and dropout included: interrupted after three steps, or not at all. They are read on the host, wherever the
    encoder lies: their optimizer looks there at each step for how many it has done."""
    objective = auxiliary()
    objective["terms"].append({"weight": 0.1, "objective": {"name": "mlm", "mask_fraction": 0.3}})  # type: ignore[union-attr]
    plan, context = tiny_plan(values(encoder, adversaries={"objective": objective}), data=data, store=tmp_path / "store")
    (stage,) = (stage for stage in plan.stages if isinstance(stage, Train))
    run_local_until_train(plan, context)

    def session() -> TrainSession:
        return TrainSession(stage, context, make_engine=TorchEngine, bank=None)

    reports = [event for event in session().events() if not isinstance(event, DevScore)]
    first = session()  # seeds torch, as the one before did
    for event in first.events():
        if not isinstance(event, DevScore) and event.step == 2:
            first.save(tmp_path / "checkpoint")
            break
    second = session()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(SentenceEncoder, "device", property(lambda encoder: torch.device("meta")))
        second.load(tmp_path / "checkpoint")
    rest = [event for event in second.events() if not isinstance(event, DevScore)]
    assert [report.loss for report in rest] == [report.loss for report in reports[3:]]


def run_local_until_train(plan: object, context: object) -> None:
    from sentdist.stages.local import build_here

    for stage in plan.stages:  # type: ignore[attr-defined]
        if stage.kind in ("corpus", "targets"):
            build_here(stage, context)  # type: ignore[arg-type]
