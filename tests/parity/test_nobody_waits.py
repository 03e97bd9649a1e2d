"""Within a step nobody waits for a GPU: no number is read, no shape learnt, and copies come out of pinned memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.engine import TorchEngine
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Learner, Optimization
from sentdist.objectives.supmpn import supmpn
from tests.parity.word_batches import word_batches
from tests.support import make
from tests.support.mask_tokens import maskable_encoder
from tests.support.objective_steps import NAMES, step_within
from tests.support.pretend_gpu import PretendEvent, nobody_waits, pretended_gpu

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore:User provided device_type of 'cuda'")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return maskable_encoder(tmp_path_factory.mktemp("maskable"))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("micro_batch", [None, 5])
@pytest.mark.parametrize("name", NAMES)
def test_within_a_step(name: str, micro_batch: int | None, folder: Path) -> None:
    step_within(nobody_waits, name, folder, pretended_gpu(), micro_batch=micro_batch)


@pytest.mark.usefixtures("one_thread")
def test_within_a_step_of_a_family_whose_attention_has_no_kernel_there(tmp_path: Path) -> None:
    for family in ("mpnet", "t5"):
        step_within(nobody_waits, "info_nce", maskable_encoder(tmp_path / family, family), pretended_gpu(), micro_batch=None)


@pytest.mark.usefixtures("one_thread")
def test_within_the_loop_while_no_step_is_read_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step and the last are, the third is read a step late. The norm is stood in for: torch's own asks where a gradient really
    lies. Events say here after how many steps they were recorded and waited for."""
    said: list[tuple[str, int]] = []
    num_begun = 0

    monkeypatch.setattr(PretendEvent, "record", lambda event, stream: said.append(("recorded", num_begun)))
    monkeypatch.setattr(PretendEvent, "synchronize", lambda event: said.append(("waited for", num_begun)))
    encoder = SentenceEncoder.load(folder, hidden_dropout=0.0, attention_dropout=0.0)
    objective = make.info_nce(temperature=0.05)

    def batches() -> Iterator[Batch]:
        first, *others, last = word_batches(encoder, 6)
        yield first
        with nobody_waits():
            yield from others
        yield last

    with pretended_gpu() as gpu:
        engine = TorchEngine(Learner(encoder, objective), Optimization(num_steps=6, lr=1e-3, clip_norm=None), device=gpu)
        ones = torch.ones(3, dtype=torch.float64, device=gpu)

        def step_unread(loss: Tensor, *, vote: float = 0.0) -> Tensor:
            nonlocal num_begun
            num_begun += 1
            return ones

        engine.step_unread = step_unread  # type: ignore[method-assign]
        reports = train_steps(engine, objective, batches(), is_read=lambda step: step in (0, 5), is_read_late=lambda step: step == 2)
        found = [(report.step, report.is_latest, num_begun) for report in reports]
    assert found == [(0, True, 1), (1, False, 4), (2, False, 4), (3, False, 6), (4, False, 6), (5, True, 6)]
    assert said == [("recorded", 3), ("waited for", 4)]


def test_within_supmpn_as_the_authors_mask() -> None:
    with pretended_gpu() as gpu:
        anchors, positives, negatives = (torch.ones(*shape, 5, device=gpu) for shape in ((4,), (4, 2), (4, 1)))
        with nobody_waits():
            supmpn(anchors, positives, negatives, first_row=0, temperature=0.05, masked="zero")


def test_what_waits_is_refused() -> None:
    with pretended_gpu() as gpu:
        there, here = torch.ones(3, device=gpu), torch.ones(3)
        with nobody_waits():
            assert here.pin_memory().to(gpu, non_blocking=True).device == gpu
            assert torch.empty(3, pin_memory=True).copy_(there, non_blocking=True).device.type == "cpu"
            for waits in (
                lambda: here.to(gpu, non_blocking=True),
                lambda: here.pin_memory().to(gpu),
                lambda: there.cpu(),
                lambda: here.copy_(there, non_blocking=True),
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
