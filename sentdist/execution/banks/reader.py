"""A bank in Ray's object store as a training worker reads it: all workers of a host look at the same memory."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import ray
import torch
from ray.exceptions import ObjectLostError, RayActorError, RayTaskError
from torch import Tensor

from sentdist.errors import ArtifactLost, DataError, StoreError
from sentdist.execution.banks.owner import IDLE_S, BankOrder, BankPlacement, HeldBank, ask_owner, bank_owner
from sentdist.execution.cluster.connection import cause_of
from sentdist.families import POOLINGS, configured
from sentdist.files import drop_remedy, reading
from sentdist.learning.bank import HostBank, StoredBank, check_ids, look_up
from sentdist.learning.bank_shape import bank_bytes, bank_shape, bytes_together
from sentdist.plan.stages import Bank, Train
from sentdist.stages.context import Context
from sentdist.stages.rungs import file_bank

TRIES = 2  # a shard that is lost is asked for once more; then something is wrong that asking again does not fix
SAY_EVERY_S = IDLE_S / 3  # that the bank is still read

log = logging.getLogger(__name__)

Shards = tuple[np.ndarray, ...]
T = TypeVar("T")


class ObjectStoreBank(HostBank):
    """A bank over shards in shared memory. A pickle of it is its orders: it opens itself again wherever it arrives."""

    def __init__(self, orders: Sequence[BankOrder], shards: Sequence[Shards]) -> None:
        """One order and its shards for each encoder, in the order of n."""
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
        """As `BankReader.rows`."""
        ids = np.asarray(sentence_ids).ravel()
        check_ids(ids, num_sentences=self.num_sentences, where=self.where)
        rows_NKD = look_up(self._shards, ids, rows_per_shard=[order.shape.rows_per_shard for order in self.orders])
        if time.monotonic() - self._said_at > SAY_EVERY_S:
            self._said_at = time.monotonic()
            owner, keys = bank_owner(self.orders[0].store), tuple(order.key for order in self.orders)
            owner.read.options(max_task_retries=0).remote(keys)  # nobody waits for it
        return torch.from_numpy(rows_NKD)

    def __reduce__(self) -> tuple[object, ...]:
        return open_orders, (self.orders,)


def open_bank(stages: tuple[Bank, ...], context: Context) -> StoredBank:
    """The finished banks of N entropy encoders, in the object store; the first to ask has them read, the others find them there.

    Raises:
        DataError: the banks do not fit together, or an artifact is damaged.
        ResourceError: neither the object store nor the disk that it spills to can take them.
        StoreError: an artifact is missing, or the cluster loses the shards again and again.
    """
    return open_orders(tuple(order_of(stage, context) for stage in stages))


def open_orders(orders: tuple[BankOrder, ...]) -> ObjectStoreBank:
    """As `open_bank`, for banks whose artifacts are known."""
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
        held, placement = _ask(orders, lost)
        if placement is not None:
            log.log(logging.WARNING if placement.spilled_bytes else logging.INFO, placement.line)
        try:
            return ObjectStoreBank(orders, [_get(bank) for bank in held])
        except (ObjectLostError, RayTaskError) as error:
            lost = tuple(bank.generation for bank in held)
            cause = cause_of(error)
            if attempt == TRIES - 1 or isinstance(cause, ArtifactLost):  # a damaged artifact is read no better a second time
                bank_owner(first.store).forget.remote(lost)
                raise (cause if isinstance(cause, DataError | StoreError) else _lost(orders, cause)) from None
    raise AssertionError("the last try returns or raises")


def placement_of(stage: Bank, context: Context) -> BankPlacement:
    """Where a bank will lie, said before it is made: S is known from its corpus, D from the configuration of its encoder.

    Raises:
        ResourceError: neither the object store nor the disk that it spills to can take it.
        StoreError: corpus or encoder are not finished.
    """
    corpus = context.store.get(stage.corpus)
    encoder = context.store.get(stage.encoder)
    if corpus is None or encoder is None:
        raise ArtifactLost(
            where=f"{context.store.shown}/{stage.place}",
            found="no corpus or no encoder for it",
            expected="its inputs finished",
            remedy="Run the whole recipe.",
        )
    num_bytes = bank_bytes(int(str(corpus.record.results["num_sentences"])), _embedding_width(stage.encoder, context), stage.dtype)
    try:
        placement: BankPlacement = ask_owner(context.store.root, lambda owner: owner.placement.remote(num_bytes))
    except RayTaskError as error:
        raise cause_of(error) from None
    return placement


def _embedding_width(encoder: Train, context: Context) -> int:
    """By what the folder of a trained encoder says: of the dense layer behind its pooling, or of its layers."""

    def said_in(file: str, read: Callable[[Any], T]) -> T:
        place = f"{encoder.place}/{file}"
        content = context.store.open_file(place).read()
        with reading(None, where=place, expected="the configuration of an encoder", remedy=drop_remedy(Path(encoder.place))):
            return read(json.loads(content))

    if not POOLINGS[encoder.encoder.pooling].gives_dense:
        return said_in("config.json", lambda values: int(configured(values, "width") or values["hidden_size"]))
    dense = said_in("modules.json", lambda found: next(str(one["path"]) for one in found if one["type"].endswith(".Dense")))
    return said_in(f"{dense}/config.json", lambda values: int(values["out_features"]))


def order_of(stage: Bank, context: Context) -> BankOrder:
    """What to ask the owner for; StoreError or DataError unless the artifact is there and says what it holds."""
    artifact = context.store.get(stage)
    if artifact is None:
        raise ArtifactLost(
            where=f"{context.store.shown}/{stage.place}", found="nothing", expected="a finished bank", remedy="Run the whole recipe."
        )
    said = f"{stage.place}/bank.json"
    return BankOrder(
        store=context.store.root,
        place=stage.place,
        key=stage.key,
        made_at=artifact.record.created_at,
        label=stage.label,
        encoder=stage.encoder.label,
        shape=bank_shape(context.store.open_file(said).read().decode(), where=said),
    )


def _ask(orders: tuple[BankOrder, ...], lost: tuple[str, ...]) -> tuple[list[HeldBank], BankPlacement | None]:
    try:
        answer: tuple[list[HeldBank], BankPlacement | None] = ask_owner(
            orders[0].store, lambda owner: owner.shards.remote(list(orders), lost)
        )
    except RayTaskError as error:
        raise cause_of(error) from None
    except RayActorError as error:
        raise _lost(orders, error) from error
    return answer


def _get(bank: HeldBank) -> Shards:
    """Views of the shards in this host's object store, fetched from others where they are not here."""
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
    """The bank of a training; None if its objective uses none."""
    if not stage.banks or not context.runtime.bank_in_object_store:
        return file_bank(stage, context)

    return open_bank(stage.banks, context)
