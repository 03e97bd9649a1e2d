"""The losses of 20 steps of a tiny encoder are what they were: an intended change edits losses.json in the same commit and says why."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sentdist.learning.bank import HostBank
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import TorchEngine
from sentdist.learning.loop import train_steps
from sentdist.learning.objective import Objective
from sentdist.learning.optimization import Optimization
from tests.parity.word_batches import NUM_SENTENCES, word_batches
from tests.support import make

GOLDEN = Path(__file__).parent / "losses.json"


class GoldenBank(HostBank):
    """Two frozen encoders' embeddings: sines of the sentence ids, the same on every machine."""

    def rows(self, sentence_ids: np.ndarray) -> torch.Tensor:
        ids = torch.from_numpy(np.asarray(sentence_ids).ravel()).double()
        frequencies = torch.arange(1, 65, dtype=torch.float64).view(2, 1, 32)
        return torch.sin(frequencies * (ids.view(1, -1, 1) + 1) / NUM_SENTENCES).float()


OBJECTIVES: dict[str, Objective] = {
    "info_nce, temperature 0.05": make.info_nce(temperature=0.05),
    "entropy, phi 0.04": make.entropy(phi=0.04),
    "entropy, phi -0.5": make.entropy(phi=-0.5),
    "rcl, 2 encoders": make.rcl(bank=GoldenBank()),
    "rcl, regulator temperature 0.3, weight 0.5": make.rcl(
        bank=GoldenBank(), temperature=0.05, regulator_temperature=0.3, regulator_weight=0.5
    ),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_losses_of_20_steps(name: str, tiny_encoder_dir: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir, hidden_dropout=0.0, attention_dropout=0.0)
    engine = TorchEngine(encoder, Optimization(num_steps=20, lr=1e-3, warmup_fraction=0.1))
    losses = [round(report.loss, 6) for report in train_steps(engine, OBJECTIVES[name], word_batches(encoder, 20))]
    # float32 on another processor sums in another order: 1e-6 a step, times what 20 steps of learning make of it.
    assert losses == pytest.approx(json.loads(GOLDEN.read_text())[name], rel=1e-4), json.dumps({name: losses})
