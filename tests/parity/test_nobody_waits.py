"""Within a step nobody waits for a GPU: no number is read, no shape learnt, and copies come out of pinned memory."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import TorchEngine
from sentdist.learning.gather import by_share
from sentdist.learning.grad_cache import encode_in_micro_batches
from sentdist.learning.learner import Learner
from sentdist.learning.optimization import Optimization
from tests.parity.word_batches import word_batches
from tests.support.mask_tokens import maskable_encoder
from tests.support.objective_steps import NAMES, labelled, made_objective
from tests.support.pretend_gpu import nobody_waits, pretended_gpu

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore:User provided device_type of 'cuda'")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return maskable_encoder(tmp_path_factory.mktemp("maskable"))


# CoSENT keeps the pairs whose labels differ, and waits once a step to learn how many they are.
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("micro_batch", [None, 5])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "cosent"])
def test_within_steps_that_are_not_read(name: str, micro_batch: int | None, folder: Path) -> None:
    encoder = SentenceEncoder.load(folder, hidden_dropout=0.0, attention_dropout=0.0)
    objective = made_objective(name, encoder, "fp32", micro_batch)
    with pretended_gpu() as device:
        engine = TorchEngine(Learner(encoder, objective), Optimization(num_steps=2, lr=1e-3), device=device)
        objective.place_on(device)
        for number, batch in enumerate([labelled(name, batch, device) for batch in word_batches(encoder, 2)]):
            with nobody_waits() if number else nullcontext():  # torch makes tables of its own in a first step
                read = batch.tokens if objective.reads_embeddings else batch.tokens.take([0])
                embeddings = encode_in_micro_batches(engine.encode, read, micro_batch=micro_batch)
                engine.backward(by_share(objective(embeddings, batch), batch.num_rows, of=batch.num_rows_of_all))
            engine.step()
            with nobody_waits():
                objective.after_step(embeddings.detach(), batch)


def test_what_waits_is_refused() -> None:
    with pretended_gpu() as gpu:
        there, here = torch.ones(3, device=gpu), torch.ones(3)
        with nobody_waits():
            assert here.pin_memory().to(gpu, non_blocking=True).device == gpu
            for waits in (
                lambda: here.to(gpu, non_blocking=True),
                lambda: here.pin_memory().to(gpu),
                lambda: there.cpu(),
                lambda: float(there.sum()),
                lambda: bool(there.all()),
                lambda: there.tolist(),
                lambda: there.nonzero(),
                lambda: there[torch.tensor([1])],
                lambda: there[there > 0],
                lambda: torch.tensor([1.0], device=gpu),
            ):
                with pytest.raises(RuntimeError, match="waits for the GPU"):
                    waits()
        assert float(there.sum()) == 3.0
