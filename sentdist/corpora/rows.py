"""The corpus of plain rows from one source: single sentences, pairs, or triplets with a hard negative."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from sentdist.corpora.kind import CorpusStage, CorpusTable, Planning, Reading, Section, SourceSection, pinned
from sentdist.errors import RecipeError
from sentdist.recipe.resolver import Resolver
from sentdist.recipe.specs import Fold, OwnRows
from sentdist.recipe.stage import slug
from sentdist.tasks.cards import TASKS

Documents = Literal["answer", "question", "question_answer"]


class RowsCorpus(CorpusStage):
    """Training rows as ids into a table of unique sentences."""

    later_fields: ClassVar[tuple[str, ...]] = ("own",)

    kind: ClassVar[str] = "corpus"  # in keys and folders of artifacts
    revision: ClassVar[int] = 1
    holds: ClassVar[str] = "an anchor, its positive, and optionally a hard negative"

    source: str
    source_revision: str
    split: str | None = None
    columns: tuple[str, ...] = ("sent0", "sent1", "hard_neg")  # anchor, positive[, negative]
    limit: Annotated[int, Field(ge=1)] | None = None
    limit_seed: int = 0
    add_reversed: bool = False  # also (positive, anchor, negative), as in the training of the start checkpoint
    fold: Fold | None = None
    document_field: Documents = "answer"
    own: OwnRows | None = None  # the source is a user file

    @property
    def label(self) -> str:
        fold = f"-fold{self.fold.number}" if self.fold else ""
        return slug(f"{self.source}{f'-{self.limit}' if self.limit else ''}{fold}")

    @property
    def num_columns(self) -> int:
        return len(self.columns)

    @property
    def num_positives(self) -> int:
        return min(1, len(self.columns) - 1)

    @property
    def training_fold(self) -> Fold | None:
        return self.fold

    def follows(self, name: str) -> bool:
        return name == "split" and self.split == "train"

    @property
    def sources(self) -> tuple[RowsCorpus]:
        return (self,)

    def read(self, reading: Reading) -> CorpusTable:
        """Return the pinned rows of a source; of a fold, each query with a relevant document."""
        from sentdist.data.retrieval import faq_pairs, read_retrieval

        if (fold := self.fold) is not None:
            collection = read_retrieval(self.source, split=self.split, data_root=reading.root, document_field=self.document_field)
            table = faq_pairs(collection, fold=fold.number, num_folds=fold.num_folds, seed=fold.seed, by=fold.by)
        else:
            table = reading.rows(self, self.columns)
        columns = self.columns if self.fold is None else ("anchor", "positive")
        return CorpusTable(table=table, columns=columns, limit=self.limit, limit_seed=self.limit_seed, add_reversed=self.add_reversed)

    @property
    def described(self) -> tuple[str, ...]:
        """Description of the data for a model card."""
        rows = f", {self.limit} rows" if self.limit else ""
        return (f"{self.source} ({self.split or 'all'}{rows}, {self.source_revision})",)


class RowsSection(SourceSection, Section):
    """The training rows of a recipe, from one source."""

    kind: Literal["rows"] = "rows"
    columns: tuple[str, ...] = ("sent0", "sent1", "hard_neg")
    limit: Annotated[int, Field(ge=1)] | None = None
    limit_seed: int = 0
    add_reversed: bool = False
    document_field: Documents = "answer"

    @model_validator(mode="after")
    def _one_to_three_columns(self) -> RowsSection:
        if len(self.columns) not in (1, 2, 3):
            raise ValueError(
                f"found {len(self.columns)} columns; expected two (anchor, positive), three (and a hard negative), or one (sentences)"
            )
        if self.add_reversed and len(self.columns) == 1:
            raise ValueError("add_reversed: found one column; expected an anchor and a positive to swap; leave it out")
        return self

    @property
    def shown(self) -> str:
        return self.source

    def judged_source(self, resolver: Resolver) -> str | None:
        is_known = self.source in {card.source for card in TASKS.values() if card.kind == "retrieval"}
        return self.source if is_known or resolver.is_retrieval(self.source) else None

    @property
    def documents_by(self) -> str:
        return self.document_field

    def planned(self, given: Planning, *, where: str) -> tuple[RowsCorpus, int]:
        is_retrieval = self.judged_source(given.resolver) is not None
        unread = "columns" if is_retrieval else "document_field"
        if getattr(self, unread) != type(self).model_fields[unread].default:
            found = f"a field without effect on {'a retrieval source' if is_retrieval else 'rows'}"
            raise RecipeError(where=f"{where}.{unread}", found=found, expected="its default", remedy="Leave it out.")
        columns = ("query", "document") if is_retrieval else self.columns
        pin = self.pin(given.resolver, () if is_retrieval else columns, where=f"{where}.source")
        corpus = RowsCorpus(**pinned(self, pin, without={"columns"}), columns=columns, fold=given.fold if is_retrieval else None)
        rows = min(pin.num_rows, self.limit or pin.num_rows) * (2 if self.add_reversed else 1)
        return corpus, rows if corpus.fold is None else rows * (corpus.fold.num_folds - 2) // corpus.fold.num_folds
