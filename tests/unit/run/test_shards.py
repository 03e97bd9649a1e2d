"""Stages in shards, and sentences over the GPUs of a machine: into how many parts a work is cut, and that cutting changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sentdist.corpora.rows import RowsCorpus
from sentdist.recipe.stages import Targets
from sentdist.run import address as own_cluster
from sentdist.run import sharing
from sentdist.run.address import LocalNode
from sentdist.run.rank import build_over_ranks
from sentdist.run.sharing import MANY_SENTENCES, shared_out
from sentdist.stages.context import Context
from sentdist.stages.local import build_here
from sentdist.stages.sharded import body_of, build_in_shards, shard_name
from sentdist.store.store import ArtifactStore
from tests.support.rank_threads import on_ranks
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


@pytest.fixture(scope="module")
def tagging(tmp_path_factory: pytest.TempPathFactory) -> tuple[Targets, Context]:
    """A targets stage whose corpus is built, over four shards."""
    recipe = tiny_values(Path("minilm-l6")) | {
        "evaluation": {"tasks": ["stsb"], "probes": {}},
        "targets": {"tagger": "tests.support.tiny_tagger:tag", "num_words": 12},
        "methods": {"base": {}},
        "baseline": None,
        "runtime": {"rows_per_shard": 40},
    }
    plan, context = tiny_plan(recipe, data=write_data(tmp_path_factory.mktemp("data")), store=tmp_path_factory.mktemp("store"))
    for stage in plan.stages:
        if isinstance(stage, RowsCorpus):
            build_here(stage, context)
    (targets,) = (stage for stage in plan.stages if isinstance(stage, Targets))
    return targets, context


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


def test_a_stage_in_shards_is_the_stage_in_one(tagging: tuple[Targets, Context], tmp_path: Path) -> None:
    stage, context = tagging
    body = body_of(stage, context)
    cut = context.store.folder(build_in_shards(stage, context, body=body))
    (tmp_path / "shards").mkdir()
    whole = tmp_path / shard_name(0, body)
    with whole.open("wb") as file:
        body.write(range(body.num_rows), file)
    body.finish(tmp_path, [whole], rows_per_shard=body.num_rows)
    assert body.num_rows > 80
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in cut.iterdir() if path.name != "record.json")
    assert all((tmp_path / name).read_bytes() == (cut / name).read_bytes() for name in names)


def test_many_sentences_go_over_all_gpus_of_a_machine(started: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")  # put back after the test
    monkeypatch.delenv("PYTORCH_ALLOC_CONF")
    with shared_out(MANY_SENTENCES, workers=None) as runtime:
        assert runtime is not None and (runtime.workers, runtime.cpus_per_worker, runtime.device) == (4, 4, "auto")
    assert started == [(16, 4)]
    assert os.environ["PYTORCH_ALLOC_CONF"] == "expandable_segments:True", "torch reads it once"
    started.clear()
    with shared_out(3, workers=2) as runtime:
        assert runtime is not None and (runtime.workers, runtime.cpus_per_worker) == (2, 1), "of a cluster that is there"
    there = [LocalNode("127.0.0.1:6379")]
    for num_sentences, num_gpus, nodes, address in (
        (None, 4, [], None),  # nobody knows how many
        (MANY_SENTENCES - 1, 4, [], None),
        (MANY_SENTENCES, 0, [], None),
        (MANY_SENTENCES, 1, [], None),  # this process takes it
        (MANY_SENTENCES, 4, there, None),  # beside a cluster a second one would give its GPUs out twice
        (MANY_SENTENCES, 4, [], "10.0.0.1:6379"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(sharing, "usable_gpus", lambda num_gpus=num_gpus: num_gpus)
            patched.setattr(sharing, "local_nodes", lambda nodes=nodes: nodes)
            if address is not None:
                patched.setenv("RAY_ADDRESS", address)
            with shared_out(num_sentences, workers=None) as runtime:
                assert runtime is None and not started


def test_the_shards_of_a_group_are_those_of_one_process(
    tagging: tuple[Targets, Context], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where workers write them themselves, and where they hand them to the first."""
    stage, context = tagging
    whole = context.store.get(stage) or build_in_shards(stage, context, body=body_of(stage, context))
    for is_shared in (True, False):
        shutil.copytree(context.store.base, tmp_path / str(is_shared))
        store = ArtifactStore(tmp_path / str(is_shared))
        found = store.get(stage)
        assert found is not None
        store.drop(found)
        monkeypatch.setattr(ArtifactStore, "is_shared", is_shared)
        there = replace(context, store=store)
        first, other = on_ranks(
            2, lambda ranks, there=there: build_over_ranks(stage, there, ranks, make_body=lambda: body_of(stage, there))
        )
        assert other is None and first.record.digests == whole.record.digests
