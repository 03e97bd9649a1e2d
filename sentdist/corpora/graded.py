"""The corpus of graded pairs: NLI labels or similarity scores, mapped to one scale, without the pairs of test sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from sentdist.corpora.kind import CorpusStage, CorpusTable, PinnedPart, Planning, Reading, Section, SourceSection, pinned
from sentdist.errors import DataError
from sentdist.objectives.objective_spec import Labels
from sentdist.recipe.specs import OwnRows
from sentdist.recipe.stage import Json, slug
from sentdist.tasks.sts import StsTask

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Scale = Literal["nli", "zero_to_five", "one_to_five"]
Rounding = Literal["half_even", "half_up", "truncate", "none"]
Spacing = Annotated[float, Field(gt=0.0)]

TOP_LABEL: dict[str, float] = {"nli": 2.0, "zero_to_five": 5.0, "one_to_five": 5.0}
LOWEST: dict[str, float] = {"nli": 0.0, "zero_to_five": 0.0, "one_to_five": 1.0}  # in the source
DECIMALS = 9  # 1.25 · (1.4 − 1) is 0.49999999999999994 in float64: rounded to these decimals before halves are decided


class GradedPart(PinnedPart):
    """Pairs of one source."""

    later_fields: ClassVar[tuple[str, ...]] = ("own",)

    columns: tuple[str, str, str] = ("sentence1", "sentence2", "score")
    scale: Scale  # nli: contradiction 0, neutral 1, entailment 2; one_to_five is mapped to 0 … 5
    own: OwnRows | None = None  # the source is a user file, whose scores are mapped to this scale


class GradedCorpus(CorpusStage):
    """Pairs with labels from 0."""

    kind: ClassVar[str] = "graded"
    revision: ClassVar[int] = 1
    holds: ClassVar[str] = "pairs with a label each"

    parts: Annotated[tuple[GradedPart, ...], Field(min_length=1)]
    rounding: Rounding = "half_even"  # of scores, to the grid of labels
    spacing: Spacing = 1.0  # of the grid
    without: tuple[StsTask, ...] = ()  # tasks whose pairs are left out of the training
    limit: Annotated[int, Field(ge=1)] | None = None
    limit_seed: int = 0

    @property
    def label(self) -> str:
        filtered = "-filtered" if self.without else ""
        return slug("+".join(part.source for part in self.parts) + (f"-{self.limit}" if self.limit else "") + filtered)

    @property
    def num_columns(self) -> int:
        return 2

    @property
    def num_positives(self) -> int:
        return 1

    @property
    def labels(self) -> Labels:
        return Labels(top=self.top_label, spacing=None if self.rounding == "none" else self.spacing)

    @property
    def top_label(self) -> float:
        """The highest label; the lowest is 0."""
        return max(TOP_LABEL[part.scale] for part in self.parts)

    @property
    def sources(self) -> tuple[GradedPart, ...]:
        return self.parts

    def read(self, reading: Reading) -> CorpusTable:
        """Return columns sentence1, sentence2 and label of all parts, with counts of each part and test set."""
        import numpy as np
        import pyarrow as pa

        from sentdist.data.leaks import pairs_seen

        tested = {task.name: _pairs_of(task, reading) for task in self.without}
        tables, counts = [], dict[str, Json]()
        removed = dict.fromkeys(tested, 0)
        for part in self.parts:
            table = self._labelled(part, reading.rows(part, part.columns))
            is_labelled = ~np.isnan(table["label"].to_numpy())
            labelled = table.filter(pa.array(is_labelled))
            pairs = list(zip(labelled["sentence1"].to_pylist(), labelled["sentence2"].to_pylist(), strict=True)) if tested else []
            kept = np.ones(labelled.num_rows, dtype=bool)
            for name, test_pairs in tested.items():
                seen = pairs_seen(pairs, test_pairs)
                removed[name] += int(seen.sum())
                kept &= ~seen
            tables.append(labelled.filter(pa.array(kept)))
            counts[part.name] = {
                "rows": table.num_rows,
                "without_label": int((~is_labelled).sum()),
                "in_test_sets": int((~kept).sum()),
                "by_label": _by_label(tables[-1]["label"].to_numpy()),
            }
        joined = pa.concat_tables(tables).combine_chunks()
        if not joined.num_rows:
            expected = "at least one with a label that is in no test set"
            raise DataError(where="graded pairs", found="none left", expected=expected, remedy="Correct corpus.without or its sources.")
        return CorpusTable(
            table=joined, columns=("sentence1", "sentence2"), values=("label",), facts={"parts": counts, "removed": dict(removed)},
            limit=self.limit, limit_seed=self.limit_seed,
        )  # fmt: skip

    def _labelled(self, part: GradedPart, rows: pa.Table) -> pa.Table:
        import pyarrow as pa

        one, other, score = part.columns
        labels = labels_of(
            rows[score].to_pylist(), scale=part.scale, rounding=self.rounding, spacing=self.spacing, where=f"{part.name}, {score}"
        )
        texts = {name: rows[column].cast(pa.large_string()) for name, column in (("sentence1", one), ("sentence2", other))}
        return pa.table({**texts, "label": pa.array(labels, pa.float32())})


def labels_of(cells: Sequence[object], *, scale: Scale, rounding: Rounding = "half_even", spacing: float = 1.0, where: str) -> np.ndarray:
    """Return (R,) float64 labels of R cells, NaN without a label (of NLI: without agreement); raise DataError for an invalid one.

    Scores from 1 to 5 become y' = 1.25 (y − 1); scores are rounded to multiples of `spacing`, unless rounding is "none".
    """
    import numpy as np

    low = LOWEST[scale]
    values = np.array([_label(cell, row, scale, where) for row, cell in enumerate(cells)], dtype=np.float64)
    if scale == "nli":
        return values
    mapped = np.round((values - low) * (TOP_LABEL[scale] / (TOP_LABEL[scale] - low)), DECIMALS)
    if rounding == "none":
        return mapped
    places = np.round(mapped / spacing, DECIMALS)
    rounded = np.rint(places) if rounding == "half_even" else np.floor(places + (0.5 if rounding == "half_up" else 0.0))
    return np.asarray(rounded * spacing)


def _label(cell: object, row: int, scale: Scale, where: str) -> float:
    from sentdist.data.cells import NLI_LABELS, NO_GOLD, row_name

    text = "" if cell is None else str(cell)
    if text == "" or (scale == "nli" and text in NO_GOLD):
        return float("nan")
    if scale == "nli" and text in NLI_LABELS:
        return NLI_LABELS[text]
    if scale != "nli":
        try:
            if LOWEST[scale] <= (value := float(text)) <= TOP_LABEL[scale]:  # not for NaN: a broken label, not a missing one
                return value
        except ValueError:
            pass
    expected = f"one of {', '.join(NLI_LABELS)}" if scale == "nli" else f"a number from {LOWEST[scale]:g} to {TOP_LABEL[scale]:g}"
    raise DataError(where=where, found=f'label "{cell}" in {row_name(row)}', expected=expected, remedy="Correct the row, or the scale.")


def _by_label(labels: np.ndarray) -> dict[str, Json]:
    import numpy as np

    values, counts = np.unique(labels, return_counts=True)
    return {f"{value:g}": count for value, count in zip(values.tolist(), counts.tolist(), strict=True)}


def _pairs_of(task: StsTask, reading: Reading) -> list[tuple[str, str]]:
    from sentdist.data.checked_rows import read_pairs
    from sentdist.data.sources import check_pinned

    check_pinned(task.source, task.revision, data_root=reading.root)
    pairs = read_pairs(task.source, split=task.split, data_root=reading.root, hub_revision=task.revision)
    return list(zip(pairs.sentence1, pairs.sentence2, strict=True))


class GradedPartSection(SourceSection):
    """One source of graded pairs."""

    columns: tuple[str, str, str] = ("sentence1", "sentence2", "score")
    scale: Scale


class GradedSection(Section):
    """The graded pairs of a recipe."""

    kind: Literal["graded"]
    parts: Annotated[tuple[GradedPartSection, ...], Field(min_length=1)]
    rounding: Rounding = "half_even"
    spacing: Spacing = 1.0
    without: tuple[str, ...] = ()  # names of tasks or groups of tasks
    limit: Annotated[int, Field(ge=1)] | None = None
    limit_seed: int = 0

    @model_validator(mode="after")
    def _fits(self) -> GradedSection:
        names = [(part.source, part.split) for part in self.parts]
        is_nli = {part.scale == "nli" for part in self.parts}
        top = max(TOP_LABEL[part.scale] for part in self.parts)
        if len(set(names)) < len(names):
            raise ValueError(f"parts: found {', '.join(source for source, _ in names)}; expected each source and split once")
        if len(is_nli) > 1:
            raise ValueError("parts: found NLI labels and scores; make two corpora of them")
        if is_nli == {True} and self.rounding != "half_even":
            raise ValueError(f"rounding: {self.rounding} has no effect on NLI labels; leave it out")
        if self.spacing != 1.0 and (is_nli == {True} or self.rounding == "none"):
            raise ValueError(f"spacing: {self.spacing:g} has no effect without rounding of scores; leave it out")
        if round(top / self.spacing, 9) % 1:
            raise ValueError(f"spacing: found {self.spacing:g}; expected a divisor of {top:g}, the highest label")
        return self

    def planned(self, given: Planning, *, where: str) -> tuple[GradedCorpus, int]:
        """Return the stage, and an estimate of its rows."""
        pins = [part.pin(given.resolver, part.columns, where=f"{where}.parts[{number}]") for number, part in enumerate(self.parts)]
        corpus = GradedCorpus(
            parts=tuple(GradedPart(**pinned(part, pin)) for pin, part in zip(pins, self.parts, strict=True)),
            without=given.pairs_of(self.without, f"{where}.without"),
            **self.model_dump(exclude={"kind", "parts", "without"}),
        )
        rows = sum(pin.num_rows for pin in pins)
        return corpus, min(rows, self.limit or rows)
