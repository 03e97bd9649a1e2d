"""Objectives as torch modules for embeddings of any encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sentdist.errors import DataError, RecipeError
from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.learning.gather import rank_and_world_size
from sentdist.objectives.objective_spec import Labels, LossInputs, needs_more
from sentdist.objectives.regression import ON_GRID
from sentdist.recipe.checks import check_fit, check_values, settled
from sentdist.recipe.objectives import AnyObjective, has_field, terms_of, uses_bank, uses_hard_negatives, uses_targets, value_of
from sentdist.stages.train_setup import make_objective


class EmbeddingLoss(nn.Module):
    """A loss of embeddings, given column by column; a head or relation vectors are its parameters.

    Under torch.distributed all ranks give equally many rows. Candidates come from all ranks, with their gradient, and the means over ranks
    of values and of gradients are those of one process with all rows.
    """

    def __init__(self, objective: AnyObjective, *, width: int | None, relations: Sequence[str]) -> None:
        super().__init__()
        self._where = f"objective {objective.name}"
        if uses_targets(objective):
            raise needs_more(objective.name, "shares of tags and words")
        self._labels, self._relations = _labels_of(objective, self._where), tuple(relations)
        rows = GivenRows(num_columns=3, num_positives=1, labels=self._labels, relation_names=self._relations)
        if any(term.needs.relations for term in terms_of(objective)) != bool(relations):
            raise RecipeError(
                where=f"{self._where}: relations", found=f"{len(self._relations)} names",
                expected="names of relations for an objective with relation vectors, else none", remedy="Correct relations.",
            )  # fmt: skip
        check_values(objective, rows, where=self._where)
        self._objective = settled(objective, rows, phi=None)
        self.loss = make_objective(self._objective, LossInputs(rows=rows, width=width))

    def forward(
        self,
        *columns: Tensor,
        num_positives: int = 1,
        labels: Tensor | None = None,
        relations: Tensor | None = None,
        augmented: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """Return the scalar loss in the objective's units (nats, or squared labels), the mean over the B rows of this rank.

        Args:
            columns: (B, D) each: anchors, then the positives, then any hard negatives.
            num_positives: columns of positives.
            labels: (B,), of graded pairs; read in each call: keep them on the CPU.
            relations: (B,) int64, index of the relation between anchor and positive; the range is checked on the CPU only.
            augmented: for objectives with regulators, (N, B, D) embeddings by N frozen encoders: of the anchors, then of each positive.

        Raises:
            DataError: tensors of other shapes. RecipeError: columns, labels or relations that the objective lacks or cannot use.
        """
        shapes = [tuple(column.shape) for column in columns]
        if len(set(shapes)) != 1 or len(shapes[0]) != 2 or not 1 <= num_positives < len(columns):
            raise DataError(
                where=self._where, found=f"{len(columns)} tensors of shapes {shapes}, {num_positives} of them positives",
                expected="anchors, positives and perhaps hard negatives, each (B, D)",
                remedy="Give one tensor a column, other values by name: labels=…, relations=….",
            )  # fmt: skip
        for name, given in {"labels": labels, "relations": relations}.items():
            if given is not None and given.shape != shapes[0][:1]:  # torch would broadcast other shapes
                raise DataError(
                    where=f"{self._where}: {name}", found=f"a tensor of shape {tuple(given.shape)}", expected=f"{shapes[0][:1]}",
                    remedy=f"Give {name}.flatten(), or the {name} of these rows.",
                )  # fmt: skip
        if not uses_hard_negatives(self._objective):
            columns = columns[: 1 + num_positives]
        rows = GivenRows(
            num_columns=len(columns),
            num_positives=num_positives,
            labels=None if labels is None else self._labels or Labels(top=float(labels.max()), spacing=None),
            relation_names=() if relations is None else self._relations,
        )
        check_fit(self._objective, rows, where=self._where)
        if self._labels is not None and labels is not None:
            _check_labels(labels, self._labels, where=self._where)
        rows_NCBD = _augmented(augmented, columns[: 1 + num_positives], wanted=uses_bank(self._objective), where=self._where)
        rank, world_size = rank_and_world_size()
        num_rows = len(columns[0])
        batch = Batch(
            tokens=collate([[0]] * (len(columns) * num_rows)),  # a placeholder: a loss reads only the number of sentences
            num_columns=len(columns),
            first_row=rank * num_rows,
            sentence_ids=np.arange(len(columns) * world_size * num_rows).reshape(len(columns), -1),
            num_positives=num_positives,
            labels=labels,
            relations=relations,
            augmented=rows_NCBD,
        )
        loss: Tensor = self.loss(torch.cat(columns), batch)
        return loss


@dataclass(frozen=True, kw_only=True)
class GivenRows:
    """Facts about rows of embeddings, with the interface of a corpus."""

    num_columns: int
    num_positives: int
    labels: Labels | None
    relation_names: tuple[str, ...]
    label: str = "these embeddings"


def _augmented(augmented: Sequence[Tensor] | None, columns: Sequence[Tensor], *, wanted: bool, where: str) -> Tensor | None:
    """(N, C, B, D) embeddings by N frozen encoders, as in a batch."""
    if not wanted and augmented is None:
        return None
    shapes = [tuple(side.shape) for side in augmented or ()]
    if augmented is None or not wanted or len(shapes) != len(columns) or {shape[1:] for shape in shapes} != {columns[0].shape}:
        raise DataError(
            where=f"{where}: augmented", found=f"tensors of shapes {shapes}", expected="(N, B, D) of each column" if wanted else "nothing",
            remedy="Give the embeddings by N frozen encoders of the anchors and of each positive." if wanted else "Leave it out.",
        )  # fmt: skip
    return torch.stack([side.detach() for side in augmented], dim=1)


def _check_labels(labels_B: Tensor, known: Labels, *, where: str) -> None:
    """Raise DataError with the first row whose label is out of range or between two steps."""
    values_B = labels_B.detach().flatten().to("cpu", torch.float64)
    step = known.spacing or known.top
    fits_B = (values_B >= -ON_GRID * step) & (values_B <= known.top + ON_GRID * step)
    if known.spacing is not None:
        fits_B &= (values_B / step - (values_B / step).round()).abs() <= ON_GRID
    if not fits_B.all():
        row = int(fits_B.logical_not().nonzero()[0, 0])
        steps = "" if known.spacing is None else f" in steps of {known.spacing:g}"
        found, expected = f"label {values_B[row]:g} in row {row}", f"labels from 0 to {known.top:g}{steps}"
        raise DataError(where=f"{where}: labels", found=found, expected=expected, remedy="Round them, or correct label_range and spacing.")


def _labels_of(objective: AnyObjective, where: str) -> Labels | None:
    """The labels that a term declares; None if the terms take any or none."""
    for term in terms_of(objective):
        if has_field(term, "label_range"):
            found = value_of(term, "label_range")
            if found is None or found[0] != 0:
                raise RecipeError(
                    where=f"{where}: label_range", found="nothing" if found is None else f"{found[0]:g} to {found[1]:g}",
                    expected="[0, the highest label], since there is no corpus to read it from",
                    remedy="Shift the labels so that they begin at 0.",
                )  # fmt: skip
            return Labels(top=found[1], spacing=value_of(term, "spacing"))
    return None
