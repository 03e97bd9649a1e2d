"""How many bytes a parameter engines hold at their peak, counted: what the estimate of a worker's memory on a GPU takes them for."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from sentdist.execution.training import deepspeed_engine
from sentdist.execution.training.deepspeed_engine import ZERO_STAGES, DeepSpeedEngine
from sentdist.learning import gradient_buckets
from sentdist.learning.encoder.tokens import TokenBatch, collate
from sentdist.learning.engine import Engine, TorchEngine
from sentdist.learning.optimization import Optimization
from sentdist.plan.sections import Runtime
from sentdist.stages.planning import worker_memory as engine_memory
from sentdist.stages.planning.worker_memory import state_bytes, step_bytes
from tests.parity.processes import run_in_processes

pytestmark = pytest.mark.parity

WIDTH, LAYERS = 512, 8  # a matrix is large enough for ZeRO 3 to share it out


class Wide(nn.Module):
    """Weights, and next to no activations."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))

    def forward(self, tokens: TokenBatch) -> Tensor:
        found: Tensor = self.layers(torch.ones(1, WIDTH))
        return found


class Unequal(Wide):
    """Two of its matrices are larger than what travels at a time."""

    def __init__(self) -> None:
        super().__init__()
        between = 5 * WIDTH
        self.layers = nn.Sequential(nn.Linear(WIDTH, between), nn.Linear(between, WIDTH), *(nn.Linear(WIDTH, WIDTH) for _ in range(4)))


class LiveBytes(TorchDispatchMode):
    """Counts what tensors lie in memory that were made inside."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for one in found if isinstance(found, tuple | list) else [found]:
            if isinstance(one, Tensor) and one.device.type == "cpu":
                storage = one.untyped_storage()
                self._known[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.peak = max(self.peak, self.now())
        return found

    def now(self) -> int:
        for place in [place for place, (reference, _) in self._known.items() if reference.expired()]:
            del self._known[place]
        return sum(size for _, size in self._known.values())


def bytes_of(rank: int, world_size: int, model: type[nn.Module], kind: str | int, share: float) -> float:
    """A parameter, at the peak of a step behind the first; the least of some, for gloo's own threads let go of what they sent a moment late
    now and then. share: of the gradient that travels at a time."""
    optimization = Optimization(num_steps=4, clip_norm=1.0)
    with LiveBytes() as live:
        encoder = model()
        num_parameters = sum(parameter.numel() for parameter in encoder.parameters())
        for module, name, numbers in (  # this process is the test's own
            (deepspeed_engine, "BUCKET_NUMBERS", share), (deepspeed_engine, "MOST_LIVE", share), (gradient_buckets, "BUCKET_BYTES", 4 * share)
        ):  # fmt: skip
            setattr(module, name, int(numbers * num_parameters))
        engine: Engine = (
            TorchEngine(encoder, optimization) if kind == "torch" else DeepSpeedEngine(encoder, optimization, zero_stage=int(kind))
        )
        gc.collect()
        peaks = []
        for _ in range(6):
            live.peak = 0
            loss = engine.encode(collate([[0]])).square().mean()
            engine.backward(loss)
            engine.step()
            peaks.append(live.peak)
    return min(peaks[1:]) / num_parameters


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.nightly), 2])
@pytest.mark.parametrize(("model", "share"), [pytest.param(Wide, 1.0, marks=pytest.mark.nightly), (Wide, 0.125), (Unequal, 0.25)])
@pytest.mark.parametrize("kind", ["torch", *ZERO_STAGES])
def test_an_engine_holds_what_it_is_estimated_to(
    kind: str | int, model: type[nn.Module], share: float, world_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not less, or a training would be let in for which there is no room; and at most a quarter more."""
    many = 10**6
    for name, numbers in {"BUCKET_NUMBERS": share, "MOST_LIVE": share, "BUCKET_BYTES": 4 * share}.items():
        monkeypatch.setattr(engine_memory, name, int(numbers * many))
    runtime = Runtime(workers=world_size, engine="torch") if kind == "torch" else Runtime(workers=world_size, zero_stage=int(kind))
    sizes = [parameter.numel() for parameter in model().parameters()]
    largest = many * max(sizes) / sum(sizes)
    estimate = (state_bytes(many, runtime, largest=largest) + step_bytes(many, runtime, largest=largest)) / many
    found = max(run_in_processes(bytes_of, world_size, model, kind, share))
    assert found < 1.01 * estimate and estimate < 1.25 * found
