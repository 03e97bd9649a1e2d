"""What a worker uses of its node: the CPUs it reserved, and of a GPU no more than its share."""

from __future__ import annotations

import os
from threading import Thread
from types import SimpleNamespace

import pytest
import torch

from sentdist.errors import ResourceError
from sentdist.execution.demand import Demand
from sentdist.execution.reserved import use_reserved


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment in which nothing is chosen for torch's allocator."""
    own = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name}
    monkeypatch.setattr(os, "environ", own)
    return own


def demand(num_gpus: float) -> Demand:
    return Demand(way="task", workers=1, num_cpus=1.0, num_gpus=num_gpus)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("num_gpus", "fractions"), [(0.0, []), (0.25, [0.25 - 0.6 / 80]), (0.01, [0.005]), (1.0, [1.0]), (2.0, [1.0])])
def test_a_part_of_a_gpu_bounds_its_memory(num_gpus: float, fractions: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Four quarters of a GPU, and four contexts of CUDA, which torch does not count, lie on it together."""
    bounds: list[float] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: SimpleNamespace(total_memory=80 * 2**30))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", bounds.append)
    use_reserved(demand(num_gpus))
    assert bounds == fractions


@pytest.mark.usefixtures("one_thread")
def test_memory_of_a_gpu_stays_whole_unless_the_user_chose_otherwise(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    read: list[str | None] = []  # by torch, when it is asked of the GPU for the first time

    def capability() -> tuple[int, int]:
        read.append(environment.get("PYTORCH_ALLOC_CONF"))
        return 9, 0

    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda fraction: None)
    use_reserved(demand(0.0))
    assert "PYTORCH_ALLOC_CONF" not in environment
    use_reserved(demand(1.0))
    assert read == ["expandable_segments:True"]
    assert environment.pop("PYTORCH_ALLOC_CONF") == "expandable_segments:True"
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        with monkeypatch.context() as chosen:
            chosen.setitem(environment, name, "max_split_size_mb:512")
            use_reserved(demand(1.0))
            assert [value for key, value in environment.items() if "ALLOC_CONF" in key] == ["max_split_size_mb:512"]


@pytest.mark.usefixtures("one_thread")
def test_a_gpu_that_torch_cannot_use_is_reported_and_nothing_runs_on_the_cpu_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    use_reserved(demand(0.0))
    with pytest.raises(ResourceError, match=r"runtime\.gpus_per_worker: found a node with a GPU that torch cannot use"):
        use_reserved(demand(1.0))


def test_a_gpu_that_torch_has_no_kernels_for_is_reported_before_one_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla V100")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_90"])
    with pytest.raises(ResourceError, match=r"compute capability 7\.5 or newer; Tesla V100 has 7\.0"):
        use_reserved(demand(1.0))


def test_a_worker_computes_with_no_numbers_that_take_a_cpu_long() -> None:
    """In none of its threads, of which all but one are torch's."""
    found: list[float] = []

    def work() -> None:  # a thread of its own, as the first that a worker's process computes in
        use_reserved(Demand(way="task", workers=1, num_cpus=2.0, num_gpus=0.0))
        found.append(float((torch.full((1_000_000,), 1e-42) * 1.0).count_nonzero()))

    before = torch.get_num_threads()
    thread = Thread(target=work)
    thread.start()
    thread.join()
    torch.set_num_threads(before)
    assert found == [0.0]
