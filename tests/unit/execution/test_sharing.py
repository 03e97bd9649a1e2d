"""Whether a work on sentences is shared out over the GPUs of a machine, of which nobody said anything."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from sentdist.execution.cluster import address as own_cluster
from sentdist.execution.cluster.address import LocalNode
from sentdist.execution.parallel import embed, sharing
from sentdist.execution.parallel import sharing as embed_shared
from sentdist.execution.parallel.sharing import MANY_SENTENCES, shared_out
from sentdist.plan.sections import Runtime
from sentdist.stages.context import Context
from sentdist.stages.scores.embed_sentences import Embed
from sentdist.store.store import ArtifactStore


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """CPUs and GPUs of clusters that were started, on a machine of 16 and 4 where none is running."""
    given: list[tuple[int, int]] = []

    @contextmanager
    def begun(*, cpus: int, gpus: int) -> Iterator[None]:
        given.append((cpus, gpus))
        yield

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(own_cluster, "own_cluster", begun)
    monkeypatch.setattr(sharing, "usable_gpus", lambda: 4)
    monkeypatch.setattr(sharing, "local_nodes", list)
    monkeypatch.setattr("joblib.cpu_count", lambda: 16)
    return given


def test_many_sentences_go_over_all_gpus_of_a_machine(started: list[tuple[int, int]]) -> None:
    with shared_out(MANY_SENTENCES, workers=None, gpus={}) as runtime:
        assert runtime is not None and (runtime.workers, runtime.cpus_per_worker, runtime.device) == (4, 4, "auto")
    assert started == [(16, 4)]


@pytest.mark.parametrize("num_sentences", [None, 1, MANY_SENTENCES - 1])
def test_few_sentences_and_who_knows_how_many_stay_in_one_process(num_sentences: int | None, started: list[tuple[int, int]]) -> None:
    with shared_out(num_sentences, workers=None, gpus={}) as runtime:
        assert runtime is None and not started


@pytest.mark.parametrize("num_gpus", [0, 1])
def test_one_gpu_is_taken_by_this_process(num_gpus: int, started: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "usable_gpus", lambda: num_gpus)
    with shared_out(MANY_SENTENCES, workers=None, gpus={}) as runtime:
        assert runtime is None and not started


def test_a_cluster_that_is_there_has_the_gpus(started: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside it a second one would give them out twice."""
    monkeypatch.setattr(sharing, "local_nodes", lambda: [LocalNode(address="127.0.0.1:6379", node_id="1")])
    with shared_out(MANY_SENTENCES, workers=None, gpus={}) as runtime:
        assert runtime is None
    monkeypatch.setattr(sharing, "local_nodes", list)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with shared_out(MANY_SENTENCES, workers=None, gpus={}) as runtime:
        assert runtime is None
    assert not started


def test_workers_that_are_asked_for_are_those_of_the_cluster(started: list[tuple[int, int]]) -> None:
    with shared_out(3, workers=2, gpus={"gpus_per_worker": 0.5}) as runtime:
        assert runtime is not None and (runtime.workers, runtime.gpus_per_worker) == (2, 0.5)
    assert not started


def test_how_a_gpus_memory_is_kept_is_said_before_torch_is_asked(started: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch reads it once, and on one GPU this process encodes itself."""
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")  # put back after the test
    monkeypatch.delenv("PYTORCH_ALLOC_CONF")
    read: list[str | None] = []

    def usable_gpus() -> int:
        read.append(os.environ.get("PYTORCH_ALLOC_CONF"))
        return 1

    monkeypatch.setattr(sharing, "usable_gpus", usable_gpus)
    with shared_out(MANY_SENTENCES, workers=None, gpus={}):
        assert read == ["expandable_segments:True"]


@pytest.mark.parametrize(
    ("num_sentences", "has_gpu", "said"),
    [
        (MANY_SENTENCES, True, ["over 4 workers"]),
        (MANY_SENTENCES - 1, True, ["on a GPU"]),
        (MANY_SENTENCES, False, ["on a GPU"]),
    ],
)
def test_many_sentences_of_an_evaluation_go_over_all_gpus_and_the_few_of_a_probe_do_not(
    num_sentences: int, has_gpu: bool, said: list[str], started: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[tuple[str, object]] = []

    def making(where: str) -> Callable[..., Embed]:
        def make(stage: object, context: Context, *, on_progress: object, tell: Callable[[str], None] = lambda line: None) -> Embed:
            made.append((where, context.runtime.workers))
            tell("over 4 workers")

            def embed_behind(sentences: list[str], prompt: str = "") -> np.ndarray:
                return np.full((len(sentences), 1), len(prompt), dtype=np.float32)

            return embed_behind

        return make

    monkeypatch.setattr(embed_shared, "embed_here", making("here"))
    monkeypatch.setattr(embed, "embed_over_workers", making("workers"))
    context = Context(store=ArtifactStore(tmp_path), runtime=Runtime(engine="torch").with_gpus(float(has_gpu)))
    reported: list[str] = []
    embeds = embed_shared.embed_on_all_gpus(Mock(), context, devices="on a GPU", tell=reported.append)
    assert not made and not reported, "before it is known how many there are"
    for sentences in (["a"] * num_sentences, ["b"], ["c"]):
        assert np.array_equal(embeds(sentences, "query: "), np.full((len(sentences), 1), len("query: "))), "behind their prompt"
    assert reported == said
    shared: list[tuple[str, object]] = [("workers", 4)] if said[0] == "over 4 workers" else []
    assert made == [*shared, ("here", 1)] and len(started) == len(shared)
