"""Banks in the object store: equal to the files, one copy a host, and there again after whatever held them is gone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from sentdist.errors import ArtifactLost, DataError, StoreError
from sentdist.learning.bank import FileBank
from sentdist.recipe.stages import Bank
from sentdist.run.bank_owner import BankFacts, bank_owner, list_banks, owner_name
from sentdist.run.bank_reader import ObjectStoreBank, open_bank
from sentdist.run.events import BANK_BYTES
from sentdist.stages.context import Context
from sentdist.store.store import ArtifactStore
from tests.cluster.artificial_banks import bank_stage, commit_bank
from tests.support.prometheus import rows
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]
SENTENCES, WIDTH, ROWS_PER_SHARD = 5000, 384, 500  # 10 shards of 375 KiB: above the 100 KiB under which Ray ships results in messages
IDS = np.random.default_rng(3).integers(0, SENTENCES, (4, 16))


@pytest.fixture
def context(cluster: Any, tmp_path: Path) -> Iterator[Context]:
    """A store with banks number 0 to 3, the last one in float32."""
    store = ArtifactStore(tmp_path / "store")
    for number in range(4):
        commit_bank(store, _stage(number), num_sentences=SENTENCES, width=WIDTH, rows_per_shard=ROWS_PER_SHARD, seed=number)
    yield Context(store=store)
    ray.kill(bank_owner(store.root))


def _listed(context: Context) -> list[BankFacts]:
    """The banks of this store: the cluster may hold those of others."""
    return [facts for facts in list_banks() if facts.owner == owner_name(context.store.root)]


def _stage(number: int) -> Bank:
    return bank_stage(number, dtype="float32" if number == 3 else "float16")


def _stages(*numbers: int) -> tuple[Bank, ...]:
    return tuple(_stage(number) for number in numbers)


def _file_rows(context: Context, *numbers: int) -> np.ndarray:
    artifacts = [context.store.get(_stage(number)) for number in numbers]
    return FileBank([context.store.folder(artifact) for artifact in artifacts if artifact]).rows(IDS).numpy()


def _held_for_s(context: Context) -> float:
    """How long the newest bank has been held."""
    return min(facts.age_s for facts in _listed(context))


def play_driver(driver: str, *arguments: str) -> str:
    """A driver of its own, to its end; what it printed."""
    command = [sys.executable, "-m", "tests.cluster.bank_drivers", driver, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_readers_of_a_host_look_at_one_memory_that_they_cannot_write(context: Context) -> None:
    one, other = (open_bank(_stages(0, 1, 2, 3), context) for _ in range(2))
    assert isinstance(one, ObjectStoreBank) and isinstance(other, ObjectStoreBank)
    assert [shard.ctypes.data for shard in one._shards[0]] == [shard.ctypes.data for shard in other._shards[0]]
    assert not any(shard.flags.writeable for shard in one._shards[0])
    rows = one.rows(IDS)
    assert rows.shape == (4, 64, WIDTH)
    np.testing.assert_array_equal(rows.numpy(), _file_rows(context, 0, 1, 2, 3))

    @ray.remote(num_cpus=0)
    def look_up(bank: ObjectStoreBank) -> np.ndarray:
        return bank.rows(IDS).numpy()

    np.testing.assert_array_equal(ray.get(look_up.remote(one)), rows.numpy())


def test_a_lost_node_and_a_short_memory(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    for number in range(3):  # 34 MiB each, for object stores of 80 MiB
        commit_bank(store, bank_stage(number), num_sentences=48_000, width=WIDTH, rows_per_shard=10_000, seed=number)
    play_driver("lose", store.root)


def test_banks_are_listed_with_what_they_are(context: Context) -> None:
    open_bank(_stages(0, 3), context)
    half, full = _listed(context)
    assert (half.label, half.key, half.encoder) == (_stage(0).label, _stage(0).key, _stage(0).encoder.label)
    assert (half.num_sentences, half.width, half.dtype, half.num_shards) == (SENTENCES, WIDTH, "float16", 10)
    assert (half.num_bytes, full.num_bytes) == (SENTENCES * WIDTH * 2, SENTENCES * WIDTH * 4)
    assert len(half.nodes) == 1 and half.age_s >= half.idle_s >= 0
    num_bytes = half.num_bytes + full.num_bytes
    wait_for(lambda: num_bytes in [value for _, value in rows(BANK_BYTES)], what=f"{num_bytes} bytes in Prometheus")


def test_a_damaged_shard_is_named_and_the_bank_that_is_made_anew_is_read(context: Context) -> None:
    artifact = context.store.get(_stage(0))
    assert artifact is not None
    shard = context.store.folder(artifact) / "shards" / "00007.npy"
    shard.write_bytes(shard.read_bytes()[:-50])
    with pytest.raises(ArtifactLost, match=r"00007.*moved to"):
        open_bank(_stages(0), context)
    assert context.store.get(_stage(0)) is None
    commit_bank(context.store, _stage(0), num_sentences=SENTENCES, width=WIDTH, rows_per_shard=ROWS_PER_SHARD, seed=0)
    np.testing.assert_array_equal(open_bank(_stages(0), context).rows(IDS).numpy(), _file_rows(context, 0))


def test_a_bank_without_an_artifact_is_refused(context: Context) -> None:
    with pytest.raises(StoreError, match="a finished bank"):
        open_bank((bank_stage(7),), context)
    commit_bank(context.store, bank_stage(5), num_sentences=SENTENCES - 1, width=WIDTH, rows_per_shard=ROWS_PER_SHARD)
    with pytest.raises(DataError, match="4999 sentences"):  # of another corpus
        open_bank((_stage(0), bank_stage(5)), context)
    with pytest.raises(DataError, match="outside the bank"):
        open_bank(_stages(0), context).rows(np.array([SENTENCES]))


def test_it_outlives_the_job_that_asked_for_it_first_and_an_owner_that_dies(context: Context, cluster: Any) -> None:
    play_driver("make", context.store.root, cluster.address)
    held_s = _held_for_s(context)
    before = open_bank(_stages(0, 1), context)
    assert _held_for_s(context) >= held_s > 0, "nothing was read again"
    ray.kill(bank_owner(context.store.root), no_restart=False)
    after = open_bank(_stages(0, 1), context)
    for bank in (before, after):
        np.testing.assert_array_equal(bank.rows(IDS).numpy(), _file_rows(context, 0, 1))
