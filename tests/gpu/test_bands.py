"""Attention of decoders and of windows on a GPU: what a CPU gives, as one operation, and masks that both passes draw alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sentdist.kernels import flat_attention
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import TorchEngine
from sentdist.learning.optimization import Optimization
from tests.support.attended import BANDS, MANY, attended
from tests.support.tiny_encoders import SENTENCES, tiny_encoder

pytestmark = pytest.mark.gpu
LENGTHS = (9, 1, 2, 240, 1, 3, 64, 65, 128, 17)
FAMILIES = {
    "qwen3": {"head_dim": 16},
    "mistral": {"sliding_window": 4, "head_dim": 16},
    "gemma3_text": {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"], "head_dim": 16},
    "modernbert": {"local_attention": 4},
    "nomic_bert": {"hidden_dropout_prob": 0.0},
    "gte": {"hidden_dropout_prob": 0.0},
    "eurobert": {},
    "mpnet": {},
    "olmo3": {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"], "head_dim": 16},
}


@pytest.mark.parametrize("has_distances", [False, True])
@pytest.mark.parametrize("num_key_heads", [1, 2, 4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("name", BANDS)
def test_bands_shared_heads_and_distances_give_what_a_cpu_gives(
    name: str, dtype: torch.dtype, tolerance: float, num_key_heads: int, has_distances: bool
) -> None:
    """Sentences of all tiles, and one beyond them."""
    seen = {"num_key_heads": num_key_heads, "has_distances": has_distances, **BANDS[name]}
    shape = {"num_heads": 4, "width": 32, "p": 0.0, "rounded_to": dtype, **seen}
    there = attended(LENGTHS, **shape, dtype=dtype, device=torch.device("cuda"))
    here = attended(LENGTHS, **shape, dtype=torch.float32, device=torch.device("cpu"))
    for found, expected in zip((there.context, *there.gradients), (here.context, *here.gradients), strict=True):
        assert float((found - expected).norm() / expected.norm()) < tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("has_distances", [False, True])
@pytest.mark.parametrize("name", BANDS)
def test_masks_are_those_of_the_derivative(name: str, dtype: torch.dtype, tolerance: float, has_distances: bool) -> None:
    seen = {"num_key_heads": 3, "has_distances": has_distances, **BANDS[name]}
    found = attended(MANY, num_heads=12, width=32, p=0.25, dtype=dtype, device=torch.device("cuda"), **seen)
    assert float(found.disagreement().max()) < tolerance


@pytest.mark.parametrize("name", BANDS)
def test_the_gradient_of_a_distance_is_the_same_each_time(name: str) -> None:
    shape = {"num_heads": 4, "width": 32, "p": 0.0, "has_distances": True, **BANDS[name]}
    first, second = (attended([*range(1, 129)] * 4, **shape, dtype=torch.bfloat16, device=torch.device("cuda")) for _ in range(2))
    assert torch.equal(first.gradients[3], second.gradients[3])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoder_learns_what_it_learns_on_a_cpu(family: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_encoder(tmp_path, family, **FAMILIES[family])
    grouped: list[int] = []
    groups = flat_attention.length_groups
    monkeypatch.setattr(flat_attention, "length_groups", lambda *args, **named: grouped.append(1) or groups(*args, **named))

    def learnt(device: str, precision: str) -> Tensor:
        encoder = SentenceEncoder.load(folder, attention_dropout=0.0)
        assert encoder.is_flat
        engine = TorchEngine(encoder, Optimization(num_steps=1, precision=precision), device=device)
        embeddings = engine.encode(encoder.tokenize(SENTENCES))
        (embeddings * torch.linspace(-1, 1, embeddings.shape[-1], device=device)).square().sum().backward()
        return torch.cat([parameter.grad.flatten().cpu() for parameter in encoder.parameters() if parameter.grad is not None])

    here = learnt("cpu", "fp32")
    grouped.clear()
    there = learnt("cuda", precision)
    assert float((there - here).norm() / here.norm()) < (0.1 if precision == "bf16" else 2e-4)
    assert precision == "fp32" or not grouped, "in half precision nobody reads groups of lengths"
