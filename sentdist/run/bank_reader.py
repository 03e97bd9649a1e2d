"""Read banks from Ray's object store, shared by all workers of a host."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence

import numpy as np
import ray
import torch
from ray.exceptions import ObjectLostError, RayActorError, RayTaskError
from torch import Tensor

from sentdist.errors import ArtifactLost, DataError, StoreError
from sentdist.learning.bank import HostBank, StoredBank, check_ids, look_up
from sentdist.learning.bank_shape import bank_shape, bytes_together
from sentdist.recipe.stages import Bank, Train
from sentdist.run.bank_owner import IDLE_S, BankOrder, HeldBank, ask_owner, bank_owner
from sentdist.run.connection import cause_of
from sentdist.stages.context import Context
from sentdist.stages.rungs import file_bank

TRIES = 2  # a lost shard is requested once more; a second loss has a cause that another request does not remove
SAY_EVERY_S = IDLE_S / 3  # between two notes to the owner that the bank is still read

Shards = tuple[np.ndarray, ...]


class ObjectStoreBank(HostBank):
    """A bank over shards in shared memory. Its pickle contains only its orders; unpickling opens it again."""

    def __init__(self, orders: Sequence[BankOrder], shards: Sequence[Shards]) -> None:
        """Take one order and its shards for each encoder, in the order of n."""
        self.orders = tuple(orders)
        self._shards = tuple(shards)
        self._said_at = time.monotonic()

    @property
    def num_sentences(self) -> int:
        return self.orders[0].shape.num_sentences

    @property
    def num_bytes(self) -> int:
        return bytes_together([order.shape for order in self.orders])

    @property
    def identity(self) -> Hashable:
        return tuple((order.store, order.key, order.made_at) for order in self.orders)

    @property
    def where(self) -> str:
        return ", ".join(order.label for order in self.orders)

    def rows(self, sentence_ids: np.ndarray) -> Tensor:
        """Return rows as `BankReader.rows` does."""
        ids = np.asarray(sentence_ids).ravel()
        check_ids(ids, num_sentences=self.num_sentences, where=self.where)
        rows_NKD = look_up(self._shards, ids, rows_per_shard=[order.shape.rows_per_shard for order in self.orders])
        if time.monotonic() - self._said_at > SAY_EVERY_S:
            self._said_at = time.monotonic()
            owner, keys = bank_owner(self.orders[0].store), tuple(order.key for order in self.orders)
            owner.read.options(max_task_retries=0).remote(keys)  # without waiting for it
        return torch.from_numpy(rows_NKD)

    def __reduce__(self) -> tuple[object, ...]:
        return open_orders, (self.orders,)


def open_bank(stages: tuple[Bank, ...], context: Context) -> StoredBank:
    """Open the finished banks of N entropy encoders in the object store; the first caller has them read, the others share them.

    Raises:
        DataError: the banks do not fit together, or an artifact is damaged.
        ResourceError: they fit neither in the object store nor on its spill disk.
        StoreError: an artifact is missing, or the cluster loses the shards repeatedly.
    """
    return open_orders(tuple(order_of(stage, context) for stage in stages))


def open_orders(orders: tuple[BankOrder, ...]) -> ObjectStoreBank:
    """Open banks whose artifacts are known; see `open_bank`."""
    if not orders:
        raise DataError(where="bank", found="no encoder", expected="at least one", remedy="Give the bank at least one phi.")
    first = orders[0]
    for order in orders:
        if (order.shape.num_sentences, order.shape.width) != (first.shape.num_sentences, first.shape.width):
            raise DataError(
                where=f"bank {order.label}",
                found=f"{order.shape.num_sentences} sentences of width {order.shape.width}",
                expected=f"{first.shape.num_sentences} of width {first.shape.width}, as {first.label} has",
                remedy="Embed the same corpus with encoders of one width.",
            )
    lost: tuple[str, ...] = ()
    for attempt in range(TRIES):
        held = _ask(orders, lost)
        try:
            return ObjectStoreBank(orders, [_get(bank) for bank in held])
        except (ObjectLostError, RayTaskError) as error:
            lost = tuple(bank.generation for bank in held)
            cause = cause_of(error)
            if attempt == TRIES - 1 or isinstance(cause, ArtifactLost):  # a damaged artifact stays damaged
                bank_owner(first.store).forget.remote(lost)
                raise (cause if isinstance(cause, DataError | StoreError) else _lost(orders, cause)) from None
    raise AssertionError("the last try returns or raises")


def order_of(stage: Bank, context: Context) -> BankOrder:
    """Return the order for a finished bank.

    Raises:
        DataError: the artifact's description is damaged.
        StoreError: the artifact is missing.
    """
    artifact = context.store.get(stage)
    if artifact is None:
        raise ArtifactLost(
            where=f"{context.store.shown}/{stage.place}", found="nothing", expected="a finished bank", remedy="Run the whole recipe."
        )
    described_in = f"{stage.place}/bank.json"
    return BankOrder(
        store=context.store.root,
        place=stage.place,
        key=stage.key,
        made_at=artifact.record.created_at,
        label=stage.label,
        encoder=stage.encoder.label,
        shape=bank_shape(context.store.open_file(described_in).read().decode(), where=described_in),
    )


def _ask(orders: tuple[BankOrder, ...], lost: tuple[str, ...]) -> list[HeldBank]:
    try:
        held: list[HeldBank] = ask_owner(orders[0].store, lambda owner: owner.shards.remote(list(orders), lost))
    except RayTaskError as error:
        raise cause_of(error) from None
    except RayActorError as error:
        raise _lost(orders, error) from error
    return held


def _get(bank: HeldBank) -> Shards:
    """Views of the shards in this host's object store, fetched from other hosts if necessary."""
    shards: Shards = tuple(ray.get(list(bank.shards)))
    assert not any(shard.flags.writeable for shard in shards), "a shard is shared memory, not a private copy"
    return shards


def _lost(orders: tuple[BankOrder, ...], error: BaseException) -> StoreError:
    reason = str(error).splitlines()
    return StoreError(
        where=f"bank {', '.join(order.label for order in orders)}",
        found=f"{type(error).__name__}: {reason[0] if reason else 'no reason given'}",
        expected="its shards in the object store, or a cluster that can read them again from the artifacts",
        remedy="Look at the nodes with `ray status`; runtime.bank_in_object_store=false maps the files instead.",
    )


def bank_of(stage: Train, context: Context) -> StoredBank | None:
    """Open the bank of a training; None if its objective uses none."""
    if not stage.banks or not context.runtime.bank_in_object_store:
        return file_bank(stage, context)
    return open_bank(stage.banks, context)
