"""Prepare a training: encoder, objective, tokens, batches of a rank, dev scorer, and exchange between ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from sentdist.data.corpus import OpenedCorpus
from sentdist.data.sampler import epoch_batches
from sentdist.errors import ArtifactLost, SentdistError
from sentdist.learning.bank import BankReader, StoredBank
from sentdist.learning.device_bank import let_bank_go, on_device
from sentdist.learning.encoder.declared import Checkpoint
from sentdist.learning.encoder.encode import tokens_at_once
from sentdist.learning.encoder.find_checkpoint import find_checkpoint
from sentdist.learning.encoder.pretrained import load_tokenizer
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import (
    Batch,
    TokenBatch,
    Tokenizer,
    TokenTable,
    merge_shards,
    token_ids,
    tokenizer_digest,
    write_shard,
)
from sentdist.learning.freed_memory import give_back_freed_memory
from sentdist.learning.gather import SharedSentences, local_rows, rank_and_world_size
from sentdist.learning.objective import Objective, Projected, WeightedSum
from sentdist.objectives.objective_spec import LossInputs
from sentdist.recipe import objectives as plan
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Selection, Tokens, Train
from sentdist.stages.context import Context, checkpoint_of, folder_of, hub_revision
from sentdist.stages.embed import viewed
from sentdist.stages.fit import gpu_bytes, size_of
from sentdist.stages.scores import mean_of_parts, score_by
from sentdist.stages.sharded import build_in_shards
from sentdist.tasks.scorer import live_scorer
from sentdist.tasks.task import load_task


def load_encoder(stage: Train, context: Context) -> SentenceEncoder:
    """Load the encoder that a training starts from: of an earlier stage, or the pretrained checkpoint."""
    regularizers = stage.regularizers
    start = None if stage.start is None else folder_of(stage.start, context)
    return SentenceEncoder.load(
        checkpoint_of(stage.encoder, context) if start is None else start,
        revision=hub_revision(stage.encoder, context) if start is None else None,
        pooling=stage.encoder.pooling,
        attention_dropout=regularizers.attention_dropout,
        hidden_dropout=regularizers.hidden_dropout,
        drophead=regularizers.drophead,
        initialization=stage.encoder.initialization if start is None else "pretrained",
        layers=stage.encoder.layers if start is None else None,
    )


def load_start_tokenizer(stage: Train, context: Context) -> Tokenizer:
    """Load only the tokenizer of `load_encoder`."""
    return load_tokenizer(Checkpoint.open(start_folder(stage, context)))


def start_folder(stage: Train, context: Context) -> Path:
    """Return the folder that `load_encoder` loads."""
    if stage.start is not None:
        return folder_of(stage.start, context)
    return find_checkpoint(checkpoint_of(stage.encoder, context), revision=hub_revision(stage.encoder, context))


def make_objective(objective: plan.AnyObjective, inputs: LossInputs) -> Objective:
    """Make the loss of an objective; its parameters start from torch's generator."""
    if isinstance(objective, plan.Sum):
        return WeightedSum([(term.weight, _term(term, inputs)) for term in objective.terms])
    return objective.make_loss(inputs)


def _term(term: plan.Term, inputs: LossInputs) -> Objective:
    objective = make_objective(term.objective, inputs)
    if not term.projected:
        return objective
    encoder = inputs.needed_encoder("sum")
    return Projected(objective, width=encoder.width, initializer_range=encoder.initializer_range)


class TokensBody:
    """`ShardedBody` of tokens; the end merges the shards."""

    suffix = "npz"

    def __init__(self, stage: Tokens, context: Context, tokenizer: Tokenizer) -> None:
        self._stage, self._context, self._tokenizer = stage, context, tokenizer

    @cached_property
    def num_rows(self) -> int:
        return self._corpus.num_sentences

    def write(self, rows: range, file: IO[bytes]) -> None:
        """Write the token ids of some sentences."""
        sentences = self._corpus.sentences(np.arange(rows.start, rows.stop))
        ids, num_truncated = token_ids(self._tokenizer, sentences, max_length=self._stage.max_length, first=rows.start)
        write_shard(file, ids, num_truncated=num_truncated)

    def finish(self, folder: Path, shards: Sequence[Path], *, rows_per_shard: int) -> dict[str, Json]:
        """Merge the shards and delete them."""
        facts = merge_shards(folder, shards)
        assert facts.num_sentences == self.num_rows, "every sentence is read once"
        for shard in shards:
            shard.unlink()
        shards[0].parent.rmdir()
        return asdict(facts)

    @cached_property
    def _corpus(self) -> OpenedCorpus:
        return OpenedCorpus.open(folder_of(self._stage.corpus, self._context))


def tokens_stage(stage: Train, tokenizer: Tokenizer) -> Tokens:
    """Return the stage of a training's tokens, which encoders with the same tokenizer share."""
    return Tokens(corpus=stage.corpus, tokenizer=tokenizer_digest(tokenizer), max_length=stage.training.max_length)


def tokens_of(stage: Train, context: Context, tokenizer: Tokenizer) -> TokenTable:
    """Return the tokens of a training's corpus; made now if the store lacks them or has them damaged.

    Processes that make them at the same time make equal ones; the first ones are kept.
    """
    wanted = tokens_stage(stage, tokenizer)
    try:
        return TokenTable.open(folder_of(wanted, context))
    except ArtifactLost:
        build_in_shards(wanted, context, body=TokensBody(wanted, context, tokenizer))
        return TokenTable.open(folder_of(wanted, context))


class RankBatches:
    """The batches of one training. Seed and epoch alone determine their order, so every rank knows it and can begin anywhere."""

    def __init__(self, stage: Train, context: Context, *, tokenizer: Tokenizer, bank: BankReader | None) -> None:
        self._stage = stage
        self._corpus = OpenedCorpus.open(folder_of(stage.corpus, context))
        self._ids_CR = self._corpus.ids[: stage.num_columns]
        self._tokens = tokens_of(stage, context, tokenizer)
        self._bank = bank

    @property
    def num_rows(self) -> int:
        """Rows of the whole corpus."""
        return self._corpus.num_rows

    def epoch(self, epoch: int) -> np.ndarray:
        """Return (steps, B) rows of an epoch's global batches; if sentences of a batch must differ, epochs differ in length."""
        training = self._stage.training
        return epoch_batches(
            self._ids_CR, batch_size=training.batch_size, seed=self._stage.seed, epoch=epoch, unique_sentences=training.unique_sentences
        )

    def beginning_at(self, epoch: int, step_in_epoch: int, *, rank: int, world_size: int) -> Iterator[tuple[int, int, Batch]]:
        """Yield (place in epoch, steps of epoch, this rank's share) of each global batch from there to the last epoch's end."""
        training = self._stage.training
        rows = local_rows(training.batch_size, rank=rank, world_size=world_size)
        for number in range(epoch, training.epochs):
            batches = self.epoch(number)
            for place in range(step_in_epoch if number == epoch else 0, len(batches)):
                yield place, len(batches), self._share(batches[place], rows)

    def _share(self, rows_M: np.ndarray, rows: range) -> Batch:
        ids_CM = np.asarray(self._ids_CR[:, rows_M])
        labels, relations = self._corpus.labels, self._corpus.relations
        own = slice(rows.start, rows.stop)
        batch = Batch(
            tokens=self._tokens.batch(ids_CM[:, own]),
            num_columns=len(ids_CM),
            first_row=rows.start,
            sentence_ids=ids_CM,
            num_positives=self._stage.corpus.num_positives,
            labels=None if labels is None else torch.tensor(labels[rows_M[own]]),
            relations=None if relations is None else torch.tensor(relations[rows_M[own]], dtype=torch.int64),
        )
        return batch if self._bank is None else self._bank.prepared(batch)


# Share of a worker's GPU memory that a bank there may take: it only saves copies, and the estimate of the rest of a training does not
# know long sentences. 10 GiB of an H100's 80 hold RCL's five banks of BERT-base over a million sentences (7.2).
BANK_SHARE = 1 / 8


def placed(bank: StoredBank | None, stage: Train, context: Context, device: torch.device) -> BankReader | None:
    """Return the bank for a training on `device`: the given one, or an equal copy on the GPU.

    An earlier training's copy of another bank is removed from the GPU. Ranks may decide differently.
    """
    if bank is not None and device.type == "cuda":
        mine = torch.cuda.get_device_properties(device).total_memory * min(1.0, context.runtime.gpus_per_worker)
        left = mine - gpu_bytes(stage, size_of(stage.encoder, context), context.runtime)
        if bank.num_bytes <= min(BANK_SHARE * mine, left):
            return on_device(bank, device)
    let_bank_go()
    return bank


class DevScorer:
    """Score an encoder in training on a selection's tasks, tokenized once; the objective's relations may score pairs."""

    def __init__(self, stage: Train, selection: Selection, context: Context, *, encoder: SentenceEncoder, objective: Objective) -> None:
        self.tasks = tuple(load_task(task, context.data_root, context.folders) for task in selection.tasks)
        self._stage, self._selection = stage, selection
        self._encoder, self._objective = encoder, objective
        at_once = context.runtime.tokens_per_batch or tokens_at_once(encoder.device)
        self._sentences = [SharedSentences(task.sentences, encoder.tokenize, tokens_per_batch=at_once) for task in self.tasks]

    def score(self, encode: Callable[[TokenBatch], Tensor]) -> float | None:
        """Return the current encoder's score × 100, dropout off; None if undefined. Collective."""
        self._encoder.eval()
        try:
            embeddings = [sentences.embedded(encode) for sentences in self._sentences]
        finally:
            self._encoder.train()
        give_back_freed_memory()
        view = self._selection.view
        scorer = live_scorer(self._objective, view.relations)
        scores = [
            score_by(task, viewed(embeddings_SD, view, where=self._stage.label, objective=self._stage.objective), scorer)
            for task, embeddings_SD in zip(self.tasks, embeddings, strict=True)
        ]
        return mean_of_parts([[scores[place] for place in part] for part in self._selection.places])


Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This worker's rank and the number of workers. Methods are collective: every worker must call each of them."""

    rank: int
    world_size: int
    exchange: Callable[[object], list[object]]  # this worker's value -> those of all workers, by rank
    gather: Callable[[object], list[object]]  # the same, but an empty list on all ranks but the first

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @contextmanager
    def errors_on_all(self) -> Iterator[None]:
        """Raise a SentdistError of one worker (the first, if several fail) on all of them, so that none waits for a failed one.

        Any other error ends its worker, and with it the group.
        """
        error = None
        try:
            yield
        except SentdistError as found:
            error = found
        for said in self.exchange(error):
            if isinstance(said, SentdistError):
                raise said

    def from_first(self, make: Callable[[], Value]) -> Value:
        """Return on every worker what the first one makes, or raise its error."""
        made = None
        with self.errors_on_all():
            if self.is_first:
                made = make()
        return cast(Value, self.exchange(made)[0])

    def first_said(self, words: str | None) -> str | None:
        """Return the text of the first worker that has one; None if none has."""
        return next((str(said) for said in self.exchange(words) if said is not None), None)


ALONE = Ranks(rank=0, world_size=1, exchange=lambda said: [said], gather=lambda said: [said])


def ranks_here() -> Ranks:
    """Return the ranks of this process's training; `ALONE` outside of a process group."""
    rank, world_size = rank_and_world_size()
    return ALONE if world_size == 1 else Ranks(rank=rank, world_size=world_size, exchange=_exchange, gather=_gather)


def _exchange(value: object) -> list[object]:
    said: list[object] = [value] * dist.get_world_size()
    dist.all_gather_object(said, value)
    return said


def _gather(value: object) -> list[object]:
    said: list[object] | None = [value] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(value, said)
    return said or []
