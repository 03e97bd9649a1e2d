"""Labels predicted from frozen embeddings by a linear classifier, scored by accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from sentdist.errors import DataError, brief
from sentdist.tasks.cards import TaskCard
from sentdist.tasks.task import Measure, OfSentences, Task, TaskKind, TaskScore, halves, labelled_rows

if TYPE_CHECKING:
    import numpy as np

    from sentdist.data.checked_rows import Labelled
    from sentdist.data.leaks import TaskTexts
    from sentdist.tasks.scorer import Scorer


class ClassificationTask(Task):
    """Labels predicted from frozen embeddings by a linear classifier."""

    later_fields: ClassVar[tuple[str, ...]] = ("own", "role")

    kind: Literal["classification"] = "classification"
    columns: tuple[str, ...] = ("text",)  # two: a pair, whose features are |u − v| and u ∗ v
    label: str = "label"
    split: str | None = None  # test split, with `train` for training; None: all rows, in nested folds
    dev: str | None = None  # the split that chooses the penalty; None: folds
    num_folds: Annotated[int, Field(ge=2)] = 10
    role: Literal["test", "dev"] = "test"  # dev: the score is the dev accuracy that chooses the penalty; it can choose checkpoints
    # SentEval's, stopped early, as its published rows need; or one trained to convergence, as small data need.
    classifier: Literal["senteval", "converged"] = "converged"

    @classmethod
    def of_card(cls, card: TaskCard, columns: tuple[str, ...]) -> dict[str, object]:
        fields = ("label", "dev", "num_folds", "classifier", "role")
        return {"columns": columns} | {name: getattr(card, name) for name in fields}

    def num_encoded(self, items: int) -> int:
        return items * len(self.columns)

    def load(self, root: Path | None, folders: Mapping[str, str]) -> LoadedClassification:
        """Read the rows to fit and to test; raise DataError as `read_labelled`, `split_rows` and `check_folds`."""
        import numpy as np

        from sentdist.evaluation.classification import check_folds, split_rows

        splits = None if self.split is None else ("train", self.split, *([self.dev] if self.dev else []))
        rows = labelled_rows(self, self.columns, self.label, splits, root)
        gold = np.asarray(rows.labels, dtype=np.str_)
        if len(set(rows.labels)) < 2:
            found = f"one label, {brief(rows.labels[0])}, in all rows"
            raise DataError(where=self.source, found=found, expected="two or more", remedy="A classifier needs classes to distinguish.")
        loaded = LoadedClassification(task=self, rows=rows)
        if loaded.parts is None:
            check_folds(gold, self.num_folds, nested=True, where=self.name)
        else:
            split_rows(gold, **loaded.parts, where=self.name)
            if self.dev is None:
                check_folds(gold[loaded.parts["train"]], self.num_folds, nested=False, where=self.name)
        return loaded


CLASSIFICATION = TaskKind(
    name="classification", value=ClassificationTask, main=Measure(name="accuracy", title="accuracy", unit="accuracy × 100"),
    columns=("text",), further=lambda card: (card.label,), table="Labels from frozen embeddings", works=("senteval",),
    own=(
        "`text`, `label`, optional `group`; a linear classifier trained to convergence (SentEval's stops too early on small data); "
        "with `@test` trained on `train`, the penalty chosen on `dev` if present; without a split ten nested folds"
    ),
    needs_train=True,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoadedClassification(OfSentences):
    """Texts, or pairs of texts, with labels; the main score is the accuracy of a linear classifier."""

    task: ClassificationTask
    rows: Labelled

    @property
    def sentences(self) -> Sequence[str]:
        return [text for column in self.rows.texts for text in column]

    @property
    def parts(self) -> dict[str, Any] | None:
        """The rows of the splits train, test and dev; None if all rows are tested in folds."""
        task, of = self.task, self.rows.rows_of
        if task.split is None:
            return None
        return {"train": of("train"), "test": of(task.split), "dev": None if task.dev is None else of(task.dev)}

    def score(self, embeddings_SD: np.ndarray, scorer: Scorer) -> TaskScore:
        from sentdist.evaluation.classification import cross_validated, pair_features, split_classified
        from sentdist.evaluation.linear_models import senteval_cross_validated, senteval_dev, senteval_split

        task, parts, labels = self.task, self.parts, self.rows.labels
        features = pair_features(*halves(embeddings_SD)) if len(task.columns) == 2 else embeddings_SD
        if task.role == "dev":
            fitted: dict[str, Any] = {} if parts is None else {"train": parts["train"], "dev": parts["dev"]}
            accuracy = senteval_dev(features, labels, **fitted, num_folds=task.num_folds, where=task.name)
            # No test items to resample.
            return TaskScore(task=task.name, main=accuracy, measures={"accuracy": accuracy}, items={"accuracy": [accuracy]})
        is_senteval = task.classifier == "senteval"
        if parts is None:
            whole = senteval_cross_validated if is_senteval else cross_validated
            found = whole(features, labels, num_folds=task.num_folds, where=task.name)
        else:
            parted = senteval_split if is_senteval else split_classified
            found = parted(features, labels, **parts, num_folds=task.num_folds, where=task.name)
        measures: dict[str, float | None] = {"accuracy": found.accuracy, **({} if found.f1 is None else {"f1": found.f1})}
        return TaskScore(task=task.name, main=found.accuracy, measures=measures, items=found.items())

    def texts(self) -> TaskTexts:
        from sentdist.data.leaks import TaskTexts

        split = self.task.split if self.task.role == "test" or self.task.split is None else self.task.dev or "train"
        tested = range(self.rows.num_rows) if split is None else self.rows.rows_of(split)
        items = tuple(tuple(column[row] for column in self.rows.texts) for row in tested)
        pairs = tuple((item, *both) for item, both in enumerate(items) if len(both) == 2)
        groups = tuple(self.rows.groups[row] for row in tested) if self.rows.groups else ()
        return TaskTexts(name=self.task.name, sentences=items, pairs=pairs, given_groups=groups)
