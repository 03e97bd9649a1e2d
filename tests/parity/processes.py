"""Runs a function in several processes of one group and returns what each rank returned."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read when the server below imports deepspeed
# A server that has imported these once forks a rank in milliseconds; started fresh, each rank would import them for seconds.
PRELOADED = (
    "tests.support.growing_heap",
    "torch.distributed.tensor",
    "tests.support.weight_names",
    "transformers.models.bert.modeling_bert",
    "deepspeed",
    "deepspeed.module_inject.auto_ep_layer",  # by any engine when it is made, as the next one
    "deepspeed.ops.op_builder.all_ops",
    "deepspeed.runtime.superoffload.superoffload_stage3",  # by a ZeRO engine when it is made
    "deepspeed.runtime.zero.muon.muon_optimizer",  # the same, with torch.compile
    "torch._subclasses.schema_check_mode",
    "torch.profiler",  # by the first step of an optimizer
    "torch.profiler._cupti_monitor",
    "torch.utils.serialization.config",  # by the first checkpoint
    "distutils.ccompiler",  # by DeepSpeed's optimizer, from setuptools
    "transformers.models.deberta_v2.modeling_deberta_v2",
    "pyarrow.dataset",  # by the first table that is read
    "hypothesis",  # this and what follows: by the modules whose functions are run
    "pytest",
    "sentdist.run.deepspeed_engine",
    "sentdist.run.rank",
    "sentdist.stages.rungs",
    "tests.support.graded_data",
    "tests.support.objective_steps",
    "tests.support.tiny_data",
    "tests.support.frozen_heap",  # the last: all of the above is left out when a rank collects garbage
)
multiprocessing.get_context("forkserver").set_forkserver_preload(list(PRELOADED))


def run_in_processes(
    function: Callable[..., Any], world_size: int, *arguments: Any, backend: str = "gloo", device: str = "cpu"
) -> list[Any]:
    """[function(rank, world_size, *arguments) of each rank]; `function` is a module's, results survive a pickle;
    a rank's error is raised here. backend: of the process group, "cuda:gloo" for one that serves tensors on a GPU only.
    device: "cuda" for processes that import everything themselves, DeepSpeed for a GPU."""
    method = "forkserver" if device == "cpu" else "spawn"
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(
            _run_rank, args=(world_size, folder, backend, device, function, arguments), nprocs=world_size, start_method=method
        )
        return [pickle.loads((Path(folder) / f"rank-{rank}").read_bytes()) for rank in range(world_size)]


def _run_rank(
    rank: int, world_size: int, folder: str, backend: str, device: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size), DS_ACCELERATOR=device)  # as a launcher sets them
    dist.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=world_size)
    try:
        result = function(rank, world_size, *arguments)
        (Path(folder) / f"rank-{rank}").write_bytes(pickle.dumps(result))
    finally:
        dist.destroy_process_group()
