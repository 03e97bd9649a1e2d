"""Two steps of any objective on any device: what is compared where an objective must give the same on a GPU as on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sentdist.learning.bank import HostBank
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch
from sentdist.learning.engine import TorchEngine
from sentdist.learning.gather import by_share
from sentdist.learning.grad_cache import encode_in_micro_batches
from sentdist.learning.objective import Objective, Projected, WeightedSum
from sentdist.learning.optimization import Learner, Optimization
from sentdist.objectives.learned.auxiliary import Adversaries
from sentdist.objectives.objective_spec import Labels, LossInputs
from sentdist.recipe.checks import settled
from sentdist.recipe.objectives import OBJECTIVES
from sentdist.recipe.recipe import objective_from_values
from tests.parity.target_tables import RandomTargets
from tests.parity.wiring.reference import references
from tests.parity.word_batches import NUM_SENTENCES, word_batches

NAMES = (*OBJECTIVES, "sum")


class RandomBank(HostBank):
    """Embeddings of all sentences by two encoders."""

    def __init__(self, width: int) -> None:
        self.table = torch.randn(2, NUM_SENTENCES, width, generator=torch.Generator().manual_seed(7))

    def rows(self, sentence_ids: np.ndarray) -> Tensor:
        return self.table[:, torch.from_numpy(np.asarray(sentence_ids).ravel())]


def on(device: str) -> AbstractContextManager[torch.device]:
    """A device that is really there."""
    return nullcontext(torch.device(device))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of two steps: the losses, the gradients of the first, averaged over ranks, and the weights after both; on the host."""

    losses: tuple[float, ...]
    gradients: dict[str, Tensor]
    weights: dict[str, Tensor]

    def distance(self, other: Outcome) -> float:
        """Of the gradients, relative to their size."""
        pairs = [(one, other.gradients[name]) for name, one in self.gradients.items()]
        off, size = (
            sum(float(part.double().square().sum()) for part in parts) for parts in zip(*((a - b, b) for a, b in pairs), strict=True)
        )
        return float((off / size) ** 0.5)


def two_steps(
    name: str,
    folder: Path,
    place: AbstractContextManager[torch.device],
    *,
    precision: str = "fp32",
    micro_batch: int | None = None,
    rank: int = 0,
    world_size: int = 1,
) -> Outcome:
    """Train an encoder that can mask tokens (see mask_tokens.py) for two steps; dropout is off, so that nothing is drawn but hidden words.

    place: entered once the encoder is loaded; gives the device. Hidden words are drawn on the host, hence alike on all devices.
    """
    torch.manual_seed(0)
    encoder = SentenceEncoder.load(folder, hidden_dropout=0.0, attention_dropout=0.0)
    objective = made_objective(name, encoder, precision, micro_batch)
    with place as device:
        engine = TorchEngine(Learner(encoder, objective), Optimization(num_steps=4, lr=1e-3, precision=precision), device=device)
        objective.place_on(encoder.device)
        torch.manual_seed(1 + rank)
        losses, gradients = [], dict[str, Tensor]()
        for batch in word_batches(encoder, 2, rank=rank, world_size=world_size):
            batch = labelled(name, batch, device)
            read = batch.tokens if objective.reads_embeddings else batch.tokens.take([0])
            embeddings = encode_in_micro_batches(engine.encode, read, micro_batch=micro_batch)
            loss = by_share(objective(embeddings, batch), batch.num_rows, of=batch.num_rows_of_all)
            engine.backward(loss)
            engine.buckets.arrive()
            gradients = gradients or {
                name: parameter.grad.detach().cpu().clone()
                for name, parameter in engine.learner.named_parameters()
                if parameter.grad is not None
            }
            losses.append(float(engine.step(loss)[0]))
            objective.after_step(embeddings.detach(), batch)
        return Outcome(losses=tuple(losses), gradients=gradients, weights=engine.weights())


def step_within(
    refusing: Callable[[], AbstractContextManager[None]],
    name: str,
    folder: Path,
    place: AbstractContextManager[torch.device],
    *,
    micro_batch: int | None,
) -> None:
    """Two steps, in which what makes the host wait for a GPU is refused; not in the first, where torch makes tables of its own."""
    encoder = SentenceEncoder.load(folder, hidden_dropout=0.0, attention_dropout=0.0)
    objective = made_objective(name, encoder, "fp32", micro_batch)
    with place as device:
        engine = TorchEngine(Learner(encoder, objective), Optimization(num_steps=2, lr=1e-3), device=device)
        objective.place_on(device)
        for number, batch in enumerate([labelled(name, batch, device) for batch in word_batches(encoder, 2)]):
            with refusing() if number else nullcontext():
                read = batch.tokens if objective.reads_embeddings else batch.tokens.take([0])
                embeddings = encode_in_micro_batches(engine.encode, read, micro_batch=micro_batch)
                loss = by_share(objective(embeddings, batch), batch.num_rows, of=batch.num_rows_of_all)
                engine.backward(loss)
            engine.step(loss)
            with refusing() if number else nullcontext():
                objective.after_step(embeddings.detach(), batch)


def made_objective(name: str, encoder: SentenceEncoder, precision: str, micro_batch: int | None) -> Objective:
    if name == "sum":
        terms = [made_objective(one, encoder, precision, micro_batch) for one in ("info_nce", "auxiliary", "mlm")]
        return WeightedSum([(1.0, Projected(terms[0], width=encoder.width)), (0.1, terms[1]), (0.1, terms[2])])
    rows: Any = SimpleNamespace(
        label="words", num_columns=_num_columns(name), num_positives=1, labels=Labels(top=5.0, spacing=1.0), relation_names=("a", "b")
    )
    given = LossInputs(
        rows=rows,
        width=encoder.width,
        encoder=encoder,
        bank=RandomBank(encoder.width),
        targets=RandomTargets(NUM_SENTENCES),
        precision=precision,
        micro_batch=micro_batch,
    )
    values: Any = settled(objective_from_values(name, given_values(name)), rows, phi=None)
    objective: Objective = values.make_loss(given)
    adversaries = getattr(objective, "adversaries", None)
    if isinstance(adversaries, Adversaries):
        for part in (adversaries.of_tags, adversaries.of_words):
            for module in part.modules():
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.0
    return objective


def given_values(name: str) -> dict[str, Any]:
    """What an objective must be given; all others stand as a recipe has them."""
    return dict(references()[name].given) if name in references() else {}


def _num_columns(name: str) -> int:
    return 2 if name != "sum" and OBJECTIVES[name].needs.labels == "needed" else 3


def labelled(name: str, batch: Batch, device: torch.device) -> Batch:
    """The columns that the objective takes, with labels 0 … 5 and two relations; as a training has them, tokens on the host."""
    num_columns, own = _num_columns(name), slice(batch.first_row, batch.first_row + batch.num_rows)
    numbers_M = batch.sentence_ids[0]
    return replace(
        batch,
        tokens=batch.tokens.take(range(num_columns * batch.num_rows)),
        num_columns=num_columns,
        sentence_ids=batch.sentence_ids[:num_columns],
        labels=torch.tensor(numbers_M[own] % 6, dtype=torch.float32, device=device),
        relations=torch.tensor(numbers_M[own] % 2, device=device),
    )
