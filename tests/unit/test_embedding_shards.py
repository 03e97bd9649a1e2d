"""Into how many shards a corpus is cut for its workers."""

from __future__ import annotations

import pytest

from sentdist.execution.embed import rows_per_shard
from sentdist.plan.runtime import Runtime


@pytest.mark.parametrize(
    ("num_sentences", "workers", "expected"),
    [
        (100, 8, 512),  # one shard: not worth cutting
        (80_000, 2, 10_000),  # four for each worker
        (10_000_000, 2, 65_536),  # never more than the runtime's
    ],
)
def test_every_worker_has_several_shards_where_there_is_enough_to_do(num_sentences: int, workers: int, expected: int) -> None:
    assert rows_per_shard(num_sentences, Runtime(workers=workers)) == expected
