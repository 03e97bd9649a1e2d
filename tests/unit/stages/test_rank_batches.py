"""A rank's share of each batch: its own rows of text and bank, the ids of all, from any place of a training on."""

from __future__ import annotations

from copy import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.errors import DataError
from sentdist.learning.bank import HostBank
from sentdist.learning.device_bank import DeviceBank
from sentdist.learning.encoder.tokens import Batch
from sentdist.plan.stages import Train
from sentdist.stages.local import build_here
from sentdist.stages.train_setup import RankBatches, load_start_tokenizer
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


class NumberedBank(HostBank):
    """Two encoders: of sentence s the first says s, the second −s; in float16."""

    def rows(self, sentence_ids: np.ndarray) -> Tensor:
        ids = torch.from_numpy(np.asarray(sentence_ids).ravel()).half()
        return torch.stack([ids, -ids])[:, :, None].expand(-1, -1, 3)


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> RankBatches:
    """Of two epochs of batches of 8."""
    values = tiny_values(tiny_encoder_dir, training={"batch_size": 8, "epochs": 2, "learning_rate": 1e-3, "max_length": 20})
    plan, context = tiny_plan(values, data=write_data(tmp_path_factory.mktemp("data")), store=tmp_path_factory.mktemp("store"))
    stage = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.num_columns == 3)
    build_here(stage.corpus, context)
    return RankBatches(stage, context, tokenizer=load_start_tokenizer(stage, context), bank=NumberedBank())


def _shares(batches: RankBatches, world_size: int) -> list[list[tuple[int, int, Batch]]]:
    return [list(batches.beginning_at(0, 0, rank=rank, world_size=world_size)) for rank in range(world_size)]


@pytest.mark.parametrize(("world_size", "sizes"), [(1, [8]), (2, [4, 4]), (3, [3, 3, 2])])
def test_ranks_share_each_batch_and_each_looks_up_its_own_rows_alone(batches: RankBatches, world_size: int, sizes: list[int]) -> None:
    """Rows of a bank travel in the type that they are stored in: half of float32."""
    (whole,), shares = _shares(batches, 1), _shares(batches, world_size)
    assert len(whole) == 2 * whole[0][1] and {len(share) for share in shares} == {len(whole)}
    for (place, num_steps, one), *parts in zip(whole, *shares, strict=True):
        for (own_place, own_num_steps, own), first, size in zip(parts, np.cumsum([0, *sizes]), sizes, strict=False):
            assert (own_place, own_num_steps, own.first_row, own.num_rows) == (place, num_steps, first, size)
            assert np.array_equal(own.sentence_ids, one.sentence_ids)
            rows = [column * 8 + first + row for column in range(3) for row in range(size)]
            assert own.tokens.lengths == one.tokens.take(rows).lengths
            assert torch.equal(own.tokens.token_ids, one.tokens.take(rows).token_ids)
            assert own.augmented is not None and own.augmented.dtype == torch.float16
            ids_CB = torch.from_numpy(one.sentence_ids[:2, first : first + size]).half()
            assert torch.equal(own.augmented[..., 0], torch.stack([ids_CB, -ids_CB]))


def test_of_a_bank_on_the_device_only_the_rows_numbers_come(batches: RankBatches) -> None:
    """And a number outside it is reported here, where it is reported of other banks: on a GPU it would end the process."""
    bank = DeviceBank(NumberedBank().rows(np.arange(1000)), where="bank b")
    on_device, small = copy(batches), copy(batches)
    on_device._bank, small._bank = bank, DeviceBank(NumberedBank().rows(np.arange(2)), where="bank b")
    for world_size in (1, 3):
        for shares, others in zip(_shares(on_device, world_size), _shares(batches, world_size), strict=True):
            for (_, _, own), (_, _, other) in zip(shares, others, strict=True):
                assert own.augmented is None and own.bank_ids is not None and own.bank_ids.dtype == torch.int64
                assert other.augmented is not None and other.bank_ids is None
                assert torch.equal(bank.gathered(own.bank_ids), other.augmented)
    with pytest.raises(DataError, match=r"bank b: found .* ids outside the bank"):
        next(small.beginning_at(0, 0, rank=0, world_size=1))


def test_a_training_goes_on_where_it_stood(batches: RankBatches) -> None:
    (whole,) = _shares(batches, 1)
    left = list(batches.beginning_at(1, 2, rank=0, world_size=1))
    assert len(left) == whole[0][1] - 2 > 0
    for (place, _, one), (expected_place, _, expected) in zip(left, whole[-len(left) :], strict=True):
        assert place == expected_place and np.array_equal(one.sentence_ids, expected.sentence_ids)
