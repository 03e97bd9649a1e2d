"""Objectives as torch modules for embeddings of any encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sentdist.errors import DataError, RecipeError, typed
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
        named = {"labels": labels, "relations": relations}
        _check_tensors({f"column {number}": column for number, column in enumerate(columns)}, where=self._where)
        _check_tensors({name: value for name, value in named.items() if value is not None}, where=self._where)
        shapes = [tuple(column.shape) for column in columns]
        if len(set(shapes)) != 1 or len(shapes[0]) != 2 or not 1 <= num_positives < len(columns):
            raise DataError(
                where=self._where, found=f"{len(columns)} tensors of shapes {shapes}, {num_positives} of them positives",
                expected="anchors, positives and perhaps hard negatives, each (B, D)",
                remedy="Give one tensor a column, other values by name: labels=…, relations=….",
            )  # fmt: skip
        _check_labels_and_relations(labels, relations, num_rows=len(columns[0]), num_relations=len(self._relations), where=self._where)
        if not uses_hard_negatives(self._objective):
            columns = columns[: 1 + num_positives]
        given = GivenRows(
            num_columns=len(columns),
            num_positives=num_positives,
            labels=None if labels is None else self._labels or Labels(top=float(labels.max()), spacing=None),
            relation_names=() if relations is None else self._relations,
        )
        check_fit(self._objective, given, where=self._where)
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


def _check_tensors(given: Mapping[str, object], *, where: str) -> None:
    """Raise DataError for the first value that is no tensor."""
    for name, value in given.items():
        if not isinstance(value, Tensor):
            remedy = "Give torch tensors: torch.as_tensor(…)."
            raise DataError(where=f"{where}: {name}", found=typed(value), expected="a tensor", remedy=remedy)


def _check_labels_and_relations(
    labels_B: Tensor | None, relations_B: Tensor | None, *, num_rows: int, num_relations: int, where: str
) -> None:
    """Raise DataError unless there is one finite label and one valid relation a row: torch would broadcast other shapes."""
    for name, given in {"labels": labels_B, "relations": relations_B}.items():
        if given is not None and given.shape != (num_rows,):
            raise DataError(
                where=f"{where}: {name}", found=f"a tensor of shape {tuple(given.shape)}", expected=f"({num_rows},), one number a row",
                remedy=f"Give {name}.flatten(), or the {name} of these rows.",
            )  # fmt: skip
    if labels_B is not None and not torch.isfinite(labels_B).all():
        row = int(torch.isfinite(labels_B).to(torch.int8).argmin())
        raise DataError(
            where=f"{where}: labels", found=f"label {labels_B[row]:g} in row {row}", expected="finite numbers",
            remedy="Leave these rows out.",
        )  # fmt: skip
    if relations_B is None or not num_relations:
        return
    is_whole = not relations_B.is_floating_point() and relations_B.dtype != torch.bool
    wrong_B = (relations_B < 0) | (relations_B >= num_relations) if is_whole and relations_B.device.type == "cpu" else torch.zeros(1)
    if not is_whole or wrong_B.any():
        row = int(wrong_B.to(torch.int8).argmax())
        raise DataError(
            where=f"{where}: relations", found=f"{relations_B[row]} in row {row}" if is_whole else str(relations_B.dtype),
            expected=f"whole numbers from 0 to {num_relations - 1}", remedy="Give the index of each relation's name in `relations`.",
        )  # fmt: skip


def _augmented(augmented: Sequence[Tensor] | None, columns: Sequence[Tensor], *, wanted: bool, where: str) -> Tensor | None:
    """(N, C, B, D) embeddings by N frozen encoders, as in a batch."""
    if not wanted and augmented is None:
        return None
    shapes = [tuple(side.shape) for side in (() if augmented is None else augmented)]
    fits = len(shapes) == len(columns) and all(
        len(shape) == 3 and shape[0] == shapes[0][0] and shape[1:] == columns[0].shape for shape in shapes
    )
    if augmented is None or not wanted or not fits:
        raise DataError(
            where=f"{where}: augmented", found="nothing" if augmented is None else f"tensors of shapes {shapes}",
            expected=f"{len(columns)} tensors of shape (N, {', '.join(map(str, columns[0].shape))})" if wanted else "nothing",
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
        raise DataError(
            where=f"{where}: labels", found=f"label {values_B[row]:g} in row {row} ({int((~fits_B).sum())} such rows)",
            expected=f"labels from 0 to {known.top:g}{steps}", remedy="Round or map the labels, or correct label_range and spacing.",
        )  # fmt: skip


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
