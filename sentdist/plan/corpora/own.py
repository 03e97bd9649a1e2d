"""A person's own file as a corpus: what it holds is found out, and some of its rows are held out to choose checkpoints and to test."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, ValidationError

from sentdist.errors import RecipeError, brief
from sentdist.frozen import Frozen
from sentdist.plan.corpora.graded import GradedCorpus, GradedPart
from sentdist.plan.corpora.kind import CorpusStage, Planning, Section
from sentdist.plan.corpora.rows import Corpus
from sentdist.plan.resolver import OwnPin, Resolver
from sentdist.plan.specs import Shape, Task
from sentdist.plan.stage import Json

if TYPE_CHECKING:
    from sentdist.plan.recipe import Recipe
    from sentdist.plan.task_kinds import TripletTask

OWN = "own"  # the task that its held-out rows make
Share = Annotated[float, Field(gt=0.0, lt=0.5)]
Side = Literal["dev", "test"]


class HeldOutSection(Frozen):
    """Which rows are held out, where the file has no column `split`: whole groups of rows that share texts."""

    dev: Share = 0.1
    test: Share = 0.1
    seed: int = 0
    most: Annotated[int, Field(ge=5)] = 1000  # rows of dev, and of test
    near: Literal["auto"] | Annotated[float, Field(gt=0.0, le=1.0)] | None = "auto"  # auto: 0.8 among at most 50,000 texts, else null


class OwnSection(Section):
    """A file of one's own: a path, or a name below the data root, or a data set of the hub. What is null is recognised."""

    kind: Literal["own"]
    file: Annotated[str, Field(min_length=1)]
    revision: str | None = None  # of a hub data set
    shape: Shape | None = None
    columns: tuple[str, ...] | None = None  # of the texts, in the order anchor, positive, negative; of graded pairs the score as third
    group: str | None = None  # a column: rows of one value stay on one side
    encoding: str | None = None
    separator: str | None = None
    header: bool | None = None
    held_out: HeldOutSection = HeldOutSection()
    limit: Annotated[int, Field(ge=1)] | None = None  # of the training rows
    limit_seed: int = 0

    @property
    def shown(self) -> str:
        return self.file

    def pinned(self, resolver: Resolver, *, where: str) -> OwnPin:
        return resolver.own(self, where=where)

    def planned(self, given: Planning, *, where: str) -> tuple[CorpusStage, int]:
        pin = self.pinned(given.resolver, where=where)
        num_rows = min(pin.num_rows, self.limit or pin.num_rows)
        if pin.rows.shape == "graded":
            part = GradedPart(source=pin.name, source_revision=pin.revision, scale="zero_to_five", own=pin.rows)
            return GradedCorpus(parts=(part,), rounding="none", limit=self.limit, limit_seed=self.limit_seed), num_rows
        corpus = Corpus(
            source=pin.name,
            source_revision=pin.revision,
            split="train",
            columns=("sent0", "sent1", "hard_neg") if pin.rows.shape == "triplets" else ("sent0", "sent1"),
            limit=self.limit,
            limit_seed=self.limit_seed,
            own=pin.rows,
        )
        return corpus, num_rows

    def task(self, resolver: Resolver, side: Side, *, where: str) -> Task:
        """The held-out rows of a side: correlation with the scores of graded pairs, or the search for each anchor's positives."""
        pin = self.pinned(resolver, where=where)
        kind = kind_of_rows(pin.rows.shape)
        return Task(name=_name(kind, pin.name, side), kind=kind, source=pin.name, revision=pin.revision, split=side, own=pin.rows)

    def further_tasks(self, resolver: Resolver, side: Side, *, where: str) -> tuple[TripletTask, ...]:
        """What else the held-out rows can be scored by, but not chosen by: of triplets, whether the anchor is nearer to its positive."""
        pin = self.pinned(resolver, where=where)
        from sentdist.plan.task_kinds import TripletTask  # which imports this package

        if pin.rows.shape != "triplets":
            return ()
        return (TripletTask(name=_name("triplets", pin.name, side), source=pin.name, revision=pin.revision, split=side, own=pin.rows),)


def own_section(values: dict[str, Json], *, where: str) -> OwnSection:
    """Check the values of a section.

    Raises:
        RecipeError: one that it does not have, or not so.
    """
    try:
        return OwnSection.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        raise RecipeError(
            where=".".join((where, *map(str, problem["loc"]))), found=brief(problem["input"]), expected=problem["msg"], remedy="Correct it."
        ) from None


def kind_of_rows(shape: Shape) -> Literal["sts", "retrieval"]:
    """The kind of the task that held-out rows of a shape make, which also chooses checkpoints."""
    return "sts" if shape == "graded" else "retrieval"


def own_test_names(file: str, shape: Shape) -> tuple[str, ...]:
    """The names of the test tasks that the rows of a file make."""
    kinds = (kind_of_rows(shape), *(("triplets",) if shape == "triplets" else ()))
    return tuple(_name(kind, file, "test") for kind in kinds)


def _name(kind: str, file: str, side: Side) -> str:
    """As tasks of a person's own files are called elsewhere, KIND-SOURCE-SPLIT; wherever the file lies."""
    return "".join(letter if letter.isalnum() else "-" for letter in f"{kind}-{PurePath(file).name}-{side}".lower())


def check_own(recipe: Recipe) -> None:
    """Raise ValueError for the task own, or shapes of rows, without a corpus of kind own, and for folds of one."""
    if isinstance(recipe.corpus, OwnSection):
        if recipe.folds is not None:
            raise ValueError("folds: has no effect on a corpus of kind own, whose rows are held out once; leave it out")
        return
    of = {"evaluation.tasks": recipe.evaluation.tasks, "selection.task": () if recipe.selection is None else recipe.selection.names}
    for where, names in of.items():
        if OWN in names:
            raise ValueError(
                f"{where}: found own with a corpus of kind {recipe.corpus.kind}; expected one of kind own, whose rows are held out"
            )
    for name, method in recipe.methods.items():
        if method.shapes:
            raise ValueError(f"methods.{name}.shapes: has no effect on a corpus of kind {recipe.corpus.kind}; leave it out")
