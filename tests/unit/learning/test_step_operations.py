"""How many operations a training step asks of a GPU: each costs the host some microseconds, whatever there is to compute."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sentdist.learning import engine as engine_module
from sentdist.learning import grad_cache as anchor_blocks
from sentdist.learning import precision as precision_module
from sentdist.learning.encoder import flat_attention
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.learning.engine import TorchEngine
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Learner, Optimization
from sentdist.learning.precision import autocast
from tests.parity.toy import WIDTH, ToyBank, toy_batches
from tests.support import make
from tests.support.pretend_gpu import pretended_gpu
from tests.support.tiny_encoders import tiny_encoder

# They compute nothing.
VIEWS = set(
    [
        "view",
        "_unsafe_view",
        "t",
        "transpose",
        "permute",
        "expand",
        "slice",
        "select",
        "unsqueeze",
        "squeeze",
        "detach",
        "alias",
        "narrow",
        "as_strided",
        "unbind",
        "split",
        "reshape",
        "split_with_sizes",
        "unflatten",
        "_reshape_alias",
    ]
)


class Counting(TorchDispatchMode):
    """Counts what reaches the dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if name not in VIEWS:
            self.found[name] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("num_rows", "precision", "most"), [(64, "bf16", 650), (512, "bf16", 650), (64, "fp32", 450)])
def test_a_step_of_six_layers(num_rows: int, precision: str, most: int, tmp_path: Path) -> None:
    """MiniLM's six layers, sentences of 30 lengths: as many operations for 512 rows as for 64. Dropout, here four, is one there."""
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path, "bert", num_hidden_layers=6), attention_dropout=0.0)
    found = operations(encoder, num_rows, precision)
    assert found.total() <= most, found.most_common(12)


ROTATED: dict[str, dict[str, object]] = {
    "qwen3": {},
    "mistral": {"sliding_window": 8},
    "gemma3_text": {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
    "modernbert": {"local_attention": 8},
    "nomic_bert": {},
    "gte": {},
    "eurobert": {},
    "olmo3": {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
    "xlm-roberta-xl": {},
}


@pytest.mark.in_turns
@pytest.mark.parametrize("family", ROTATED)
def test_attention_of_what_is_no_bert_is_one_operation(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lengths a step has: nobody prepares groups of them."""
    monkeypatch.setattr(flat_attention, "length_groups", lambda *_, **__: pytest.fail("groups of lengths are prepared"))
    folder = tiny_encoder(tmp_path, family, num_hidden_layers=2, **ROTATED[family])
    encoder = SentenceEncoder.load(folder, attention_dropout=0.0)
    assert encoder.is_flat
    few, many = (operations(encoder, num_rows, "bf16") for num_rows in (8, 32))
    assert few["_flash_attention_forward"] == many["_flash_attention_forward"] == 2
    assert few.total() == many.total()


def operations(encoder: SentenceEncoder, num_rows: int, precision: str) -> Counter[str]:
    """What a training step of so many triplets, of 30 lengths, asks of a pretended GPU."""
    random = np.random.default_rng(0)
    batches = [
        Batch(
            tokens=collate([random.integers(5, 40, size=length) for length in random.integers(4, 34, size=3 * rows)]),
            num_columns=3,
            first_row=0,
            sentence_ids=np.arange(3 * rows).reshape(3, rows),
        )
        for rows in (8, num_rows)  # the first one, whose size is no matter, makes the optimizer's state
    ]
    casting = patch.object(engine_module, "autocast", lambda precision, device: autocast(precision, torch.device("cpu")))
    with_bfloat16 = patch.object(precision_module, "has_bfloat16", lambda: True)  # as any GPU that computes in it
    with pretended_gpu() as device, casting, with_bfloat16:  # torch casts for a GPU only where it has one
        objective = make.info_nce(temperature=0.05)
        engine = TorchEngine(Learner(encoder, objective), Optimization(num_steps=4, precision=precision), device=device)
        steps = train_steps(engine, objective, batches)
        next(steps)
        with Counting() as counting:
            next(steps)
    return counting.found


def test_a_gpu_holds_as_many_logits_as_its_memory_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """RCL over 20 rows, with room for one anchor's logits on a CPU; in blocks so small a GPU waits for the host all the time."""
    monkeypatch.setattr(anchor_blocks, "LOGITS_AT_ONCE", 1)
    bank, (batch,) = ToyBank(2), toy_batches(1, num_rows=20)
    sentences = torch.randn(len(batch.tokens.lengths), WIDTH, generator=torch.Generator().manual_seed(0))

    def counted(device: torch.device) -> tuple[int, Tensor]:
        embeddings = sentences.to(device).requires_grad_()
        with Counting() as counting:
            (gradient,) = torch.autograd.grad(make.rcl(bank=bank, temperature=0.05)(embeddings, batch), embeddings)
        return counting.found.total(), gradient.cpu()

    on_cpu, expected = counted(torch.device("cpu"))
    with pretended_gpu() as device:
        on_gpu, found = counted(device)
    torch.testing.assert_close(found, expected)
    assert on_gpu <= 130 < on_cpu / 10
