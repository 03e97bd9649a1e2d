"""A training with auxiliary tasks and masked language modelling, interrupted and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sentdist.learning.checkpoint import DevScore
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import TorchEngine
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train
from sentdist.stages.local import build_here
from sentdist.stages.train import TrainSession
from tests.support.mask_tokens import maskable_encoder
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


def test_a_training_resumes_with_its_adversaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adversaries, masks and dropout included: interrupted after three steps, or not at all. They are read on the host, wherever the
    encoder lies: their optimizer looks there at each step for how many it has done."""
    encoder = maskable_encoder(tmp_path / "encoder")
    terms: Json = [
        {"projected": True, "objective": {"name": "info_nce", "temperature": 0.05}},
        {"weight": 0.01, "objective": {"name": "auxiliary"}},
        {"weight": 0.1, "objective": {"name": "mlm", "mask_fraction": 0.3}},
    ]
    values = tiny_values(
        encoder,
        corpus={"source": "nli/triplets", "columns": ["sent0", "sent0"]},
        targets={"tagger": "tests.support.tiny_tagger:tag", "num_words": 12},
        methods={"adversaries": {"objective": {"name": "sum", "terms": terms}}},
        baseline=None,
    ) | {"encoder": {"checkpoint": str(encoder), "pooling": "cls"}}
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    (stage,) = (stage for stage in plan.stages if isinstance(stage, Train))
    for needed in (one for one in plan.stages if one.kind in ("corpus", "targets")):
        build_here(needed, context)

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
