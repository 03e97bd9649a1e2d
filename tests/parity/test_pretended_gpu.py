"""On a GPU that is only pretended every objective gives what it gives on a CPU, and within a step nobody waits for the device."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from tests.parity.processes import run_in_processes
from tests.support.mask_tokens import maskable_encoder
from tests.support.objective_steps import NAMES, Outcome, on, step_within, two_steps
from tests.support.pretend_gpu import nobody_waits, pretended_gpu

pytestmark = [
    pytest.mark.parity, pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore:User provided device_type of 'cuda'"),
]  # fmt: skip

CROSSING = ("info_nce", "rcl", "sum")  # with a head, adversaries and hidden words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return maskable_encoder(tmp_path_factory.mktemp("maskable"))


@pytest.mark.usefixtures("plain_layers")
@pytest.mark.parametrize("name", NAMES)
def test_every_objective_learns_there_what_it_learns_here(name: str, folder: Path) -> None:
    here = two_steps(name, folder, on("cpu"), micro_batch=5)
    there = two_steps(name, folder, pretended_gpu(), micro_batch=5)
    assert here.gradients and any(gradient.abs().max() > 1e-4 for gradient in here.gradients.values())
    # The same operations, by the same processor.
    assert there.losses == pytest.approx(here.losses, rel=1e-6)
    assert there.gradients.keys() == here.gradients.keys()
    assert there.distance(here) < 1e-6
    for weight_name, weight in here.weights.items():
        torch.testing.assert_close(there.weights[weight_name], weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_within_a_step_nobody_waits(name: str, folder: Path) -> None:
    """No number is read, no shape learnt, and copies come out of pinned memory."""
    step_within(nobody_waits, name, folder, pretended_gpu(), micro_batch=5)


@pytest.mark.parametrize("family", ["mpnet", "t5"])
def test_a_family_whose_attention_has_no_kernel_there_learns_the_same(family: str, tmp_path: Path) -> None:
    folder = maskable_encoder(tmp_path, family)
    here, there = (two_steps("info_nce", folder, device) for device in (on("cpu"), pretended_gpu()))
    assert there.losses == pytest.approx(here.losses, rel=1e-5) and there.distance(here) < 1e-5
    step_within(nobody_waits, "info_nce", folder, pretended_gpu(), micro_batch=None)


def there(rank: int, world_size: int, folder: Path) -> list[Outcome]:
    torch.set_num_threads(1)
    with warnings.catch_warnings(action="ignore"):
        return [two_steps(name, folder, pretended_gpu(), rank=rank, world_size=world_size) for name in CROSSING]


def test_what_crosses_ranks_in_a_step_lies_on_the_gpu(folder: Path) -> None:
    """The pretended GPU's collectives serve nothing else but flags, as those of NCCL would; the loss is that of the whole batch."""
    for name, outcome in zip(CROSSING, run_in_processes(there, 2, folder)[0], strict=True):
        if name != "sum":  # ranks hide words each by itself
            assert outcome.losses == pytest.approx(two_steps(name, folder, on("cpu")).losses, rel=1e-5)  # sums in another order
