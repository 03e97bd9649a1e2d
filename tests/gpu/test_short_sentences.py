"""Kernels of our own for attention within short sentences: what a CPU gives, and masks that both passes draw alike."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from sentdist.kernels import TILES, flat_attention, tensors
from sentdist.kernels.flat_attention import compiled_attention, longest_supported
from tests.support.attended import attended

pytestmark = pytest.mark.gpu
triton_kernels = pytest.importorskip("sentdist.kernels.triton_kernels", reason="Triton is not installed", exc_type=ImportError)
drawing = pytest.importorskip("tests.support.interpreted_kernels", exc_type=ImportError).drawing


@pytest.fixture(autouse=True)
def triton_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tile by itself, however few sentences it has, and no other kernels where these are not the quicker ones."""
    monkeypatch.setattr(tensors, "FEWEST_PROGRAMS", 1)
    monkeypatch.setattr(flat_attention, "is_faster_than_torch", lambda query, num_sentences: True)


@pytest.mark.parametrize("width", [16, 32, 64, 128])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_they_give_what_a_cpu_gives(dtype: torch.dtype, tolerance: float, width: int) -> None:
    gpu, longest = torch.device("cuda"), longest_supported(torch.device("cuda"), dtype, width)
    lengths = [length for length in (1, 16, 7, 64, 3, 128, 20, 20, 17, 33, 100) if length <= longest]
    used = tuple(tile for tile, _ in tensors.tile_launches(lengths, gpu, num_heads=4))
    assert used == tuple(tile for tile in TILES if tile <= longest)
    shape = {"num_heads": 4, "width": width, "p": 0.0, "rounded_to": dtype}
    there = attended(lengths, **shape, dtype=dtype, device=gpu)
    here = attended(lengths, **shape, dtype=torch.float32, device=torch.device("cpu"))
    for found, expected in zip((there.context, *there.gradients), (here.context, *here.gradients), strict=True):
        assert float((found - expected).norm() / expected.norm()) < tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 0.05)])
def test_masks_are_those_of_the_derivative_and_drawn_apart(dtype: torch.dtype, tolerance: float) -> None:
    found = attended([*range(1, 129)] * 20, num_heads=12, width=32, p=0.25, dtype=dtype, device=torch.device("cuda"))
    assert float(found.disagreement().max()) < tolerance
    assert drawing(dtype, 64, torch.device("cuda")) < (2e-2 if dtype == torch.bfloat16 else 1e-4)
    ones = torch.ones(2000 * 20, 4, 32, device="cuda", dtype=dtype)
    bounds = torch.arange(0, len(ones) + 1, 20, dtype=torch.int32, device="cuda")
    launches = tensors.tile_launches([20] * 2000, torch.device("cuda"), num_heads=4)
    attend = partial(compiled_attention, triton_kernels, boundaries=bounds, scale=1.0, p=0.25, launches=launches)
    torch.manual_seed(3)
    context, again = attend(ones, ones, ones).float(), attend(ones, ones, ones).float()
    assert not torch.equal(context, again), "each call draws on"
    assert float(context.mean()) == pytest.approx(1.0, abs=0.01)
    assert float(context[..., 0].var()) == pytest.approx(0.25 / 0.75 / 20, rel=0.05)
    heads = context[..., 0].view(2000, 20, 4) - 1.0
    for one, other in ((heads[:1000], heads[1000:]), (heads[:, :10], heads[:, 10:]), (heads[..., :2], heads[..., 2:])):
        assert abs(float((one * other).mean() / heads.var())) < 0.02, "sentences, rows and heads draw apart"
