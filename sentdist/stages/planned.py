"""Plan a recipe, an evaluation or a user file, with the context to build it in; no torch, no Ray."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path, PurePath
from typing import Literal, TypeVar

from sentdist.corpora.own import own_section
from sentdist.data.files import FileFacts, recall_note, remember_note
from sentdist.data.generated import PREFIX as GENERATED
from sentdist.data.mirror import address_of
from sentdist.errors import DataError, EncoderError, RecipeError, listed
from sentdist.files import code_digest
from sentdist.frozen import MOST_LETTERS, NAME
from sentdist.learning.encoder.find_checkpoint import PACKAGED_ENCODERS, check_has_no_revision
from sentdist.recipe.evaluation import evaluation_of
from sentdist.recipe.recipe import Recipe
from sentdist.recipe.resolver import OwnPin
from sentdist.recipe.sections import Runtime
from sentdist.recipe.specs import EncoderUse
from sentdist.recipe.stage import Json, Stage
from sentdist.recipe.stages import Scores, Train
from sentdist.recipe.suggestions import PlannedSearch, searched
from sentdist.recipe.tune_recipe import TuneRequest
from sentdist.recipe.unroll import Plan, unroll
from sentdist.stages.context import Context
from sentdist.stages.resolve import FileResolver
from sentdist.store.store import ArtifactStore
from sentdist.tasks.kinds import TASK_KINDS
from sentdist.tasks.links import LinkTask
from sentdist.tasks.sts import LimitedTask
from sentdist.tasks.task import LoadedTask, Task, load_task


def requested(recipe: Recipe, *, store: str, data: Path | None = None) -> tuple[Plan | PlannedSearch, Context]:
    """Plan a recipe's trials, or its search; return it with its context.

    Raises:
        RecipeError, DataError, EncoderError: as `planned_recipe` and `planned_search`.
    """
    return (planned_recipe if recipe.search is None else planned_search)(recipe, store=store, data=data)


def planned_trials(recipe: Recipe, *, store: str, data: Path | None = None) -> tuple[Plan, Context]:
    """Plan a recipe whose trials are known before it runs, as `planned_recipe`.

    Raises:
        RecipeError: the recipe has a `search`; others as `planned_recipe`.
    """
    if recipe.search is not None:
        raise RecipeError(
            where=f"{recipe.name}: search", found="a search, which chooses its trials as it runs", expected="a recipe without one",
            remedy="`sweep` runs it; `sentdist plan` shows its space.",
        )  # fmt: skip
    return planned_recipe(recipe, store=store, data=data)


def planned_recipe(recipe: Recipe, *, store: str, data: Path | None = None, resolver: FileResolver | None = None) -> tuple[Plan, Context]:
    """Plan a recipe; return the plan and its context, with absolute paths, because workers run in other folders.

    Args:
        resolver: One that has already read the files; None: a new one.
    """
    resolver = resolver or _resolver(data)
    plan = unroll(recipe, resolver)
    context = _context(recipe, resolver, store)
    return with_contents(plan, plan.stages, context), context


def planned_search(
    recipe: Recipe, *, store: str, data: Path | None = None, resolver: FileResolver | None = None
) -> tuple[PlannedSearch, Context]:
    """Plan the search of a recipe, as `planned_recipe` plans trials.

    Raises:
        RecipeError, DataError, EncoderError: as `searched`.
    """
    resolver = resolver or _resolver(data)
    found = searched(recipe, resolver)
    context = replace(_context(recipe, resolver, store), shares=found.search.shares)
    stages = found.plan([(method, found.first(method)) for method in found.methods]).stages
    return with_contents(found, stages, context), context


def _resolver(data: Path | None) -> FileResolver:
    return FileResolver(data_root=None if data is None else data.expanduser().absolute())


def _context(recipe: Recipe, resolver: FileResolver, store: str) -> Context:
    root = resolver.data_root
    place = store if "://" in store else str(Path(store).expanduser().absolute())
    folders = dict(sorted(resolver.folders.items()))
    return Context(store=ArtifactStore(place), data_root=address_of(root), runtime=recipe.runtime, folders=folders)


def planned_evaluation(
    use: EncoderUse, tasks: Sequence[str], *, runtime: Runtime, store: ArtifactStore, data: Path | None, command: str = "evaluate"
) -> tuple[Scores, Context, tuple[str, ...]]:
    """Plan the scores of one encoder; return the stage, its context, and notes on the data.

    Embeddings of sentences are kept for other tasks. The caller adds prompts. Without a pooling, the hub is asked for the declared one.

    Args:
        command: Named in errors.

    Raises:
        RecipeError, DataError, EncoderError: as `evaluation_of`.
    """
    if use.checkpoint in PACKAGED_ENCODERS or Path(use.checkpoint).expanduser().is_dir():
        check_has_no_revision(use.checkpoint, use.revision)
    resolver = FileResolver(data_root=data, needs_hub=True, adds_prompts=True)
    stage = evaluation_of(use, tasks, resolver, command=command)
    context = Context(store=store, data_root=address_of(data), runtime=runtime, folders=resolver.folders, keeps_embeddings=True)
    return stage, context, (*resolver.all_notes, *contents_of([stage], context)[1])


# Standard deviation of the paired difference of a trained and an untouched encoder on one held-out row, in points (MiniLM: 5 to 18), and
# how many standard errors a difference must have to be found in 4 of 5 tests at 5 %.
SPREAD = {"graded": 8.0, "pairs": 15.0, "triplets": 15.0, "faq": 15.0}
FOUND_AT = 2.8


@dataclass(frozen=True, kw_only=True)
class OwnRequest:
    """A request to train or tune on a user file, with the pinned file and the resolver that read it."""

    asked: TuneRequest
    pin: OwnPin
    resolver: FileResolver

    @property
    def smallest_difference(self) -> float:
        """Smallest difference from the untouched encoder, in points, that the test rows are likely to show; a rule of thumb."""
        return FOUND_AT * self.standard_error(self.pin.num_test)

    @property
    def dev_error(self) -> float:
        """Standard error of the difference of two settings on dev, in points; by the same rule."""
        return self.standard_error(self.pin.num_dev)

    def standard_error(self, num_rows: int) -> float:
        """Return the standard error of a difference on this many rows, in points."""
        return SPREAD[self.asked.shape] / sqrt(max(1, num_rows))


def own_request(
    file: str,
    *,
    command: Literal["train", "tune"],
    fields: dict[str, Json],
    encoders: Sequence[EncoderUse],
    data: Path | None,
    name: str | None = None,
    hours: float = 0.0,
    trials: int | None = None,
    methods: Sequence[str] = (),
) -> OwnRequest:
    """Inspect a user file and the encoders.

    Args:
        fields: The user's options for the file, as in a recipe's corpus.

    Raises:
        RecipeError, DataError, EncoderError: the name, the file or an encoder is invalid.
    """
    if name is not None and not re.fullmatch(NAME, name):
        raise RecipeError(
            where="--name", found=name, expected="small letters, digits, - and _", remedy=f"Use --name {as_name(name) or 'mine'}."
        )
    for use in encoders:
        if use != EncoderUse(checkpoint=use.checkpoint, revision=use.revision, pooling=use.pooling, max_length=use.max_length):
            raise EncoderError(
                where=f"encoder {use.checkpoint}", found="keys without effect in training", expected="revision, pooling or max_length",
                remedy="Leave the others out.",
            )  # fmt: skip
    if len(lengths := {use.max_length or MAX_LENGTH for use in encoders}) > 1:
        raise EncoderError(
            where="encoder", found=f"max_length {listed([*map(str, sorted(lengths))])}", expected="the same for all",
            remedy="Give max_length once to each.",
        )  # fmt: skip
    resolver = FileResolver(data_root=data, needs_hub=True)
    place, revision = place_of(file)
    corpus = fields | ({} if revision is None else {"revision": revision})
    pin = resolver.own(own_section({"kind": "own", "file": place, **corpus}, where="DATA"), where="DATA")
    held_out: dict[str, Json] = {"dev": 0.0, "test": pin.rows.test, "near": pin.rows.near}  # the test rows of a search, and no dev
    if command == "train":
        pin = resolver.own(own_section({"kind": "own", "file": place, **corpus, "held_out": held_out}, where="DATA"), where="DATA")
    asked = TuneRequest(
        command=command, name=name or as_name(f"{command}-{PurePath(place).name.partition('.')[0]}"), file=place, shape=pin.rows.shape,
        num_rows=pin.num_rows, num_apart=pin.num_apart, corpus=corpus, held_out=held_out,
        encoders=[(use.checkpoint, use.revision) for use in encoders], poolings=_poolings(encoders, resolver), hours=hours, trials=trials,
        methods=methods, max_length=lengths.pop(),
    )  # fmt: skip
    return OwnRequest(asked=asked, pin=pin, resolver=resolver)


def place_of(file: str) -> tuple[str, str | None]:
    """Return the place of the data as a recipe in another folder names it, and the commit of a hub data set."""
    if file.startswith("hub:"):
        return split_commit(file)
    path = Path(file).expanduser()
    return (str(path.absolute()) if path.exists() else file), None


def split_commit(name: str) -> tuple[str, str | None]:
    """Split a name and the commit after its @."""
    plain, _, commit = name.partition("@") if "/" in name and not Path(name).exists() else (name, "", "")
    return plain, commit or None


def as_name(text: str) -> str:
    """Return the nearest name that a recipe may have."""
    plain = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()  # ü is u
    return re.sub("[^a-z0-9_-]+", "-", plain)[:MOST_LETTERS].strip("-_")


MAX_LENGTH = 128  # tokens of a text, unless the encoder's name says another number


def _poolings(encoders: Sequence[EncoderUse], resolver: FileResolver) -> dict[str, str]:
    """Poolings other than the mean, as given or declared; EncoderError for a missing encoder."""
    found = {}
    for use in encoders:
        resolver.encoder(use.checkpoint, revision=use.revision, where="encoder")
        pooling = use.pooling or resolver.declared_pooling(use.checkpoint, revision=use.revision)
        if pooling not in (None, "mean"):
            found[use.checkpoint] = str(pooling)
    return found


Planned = TypeVar("Planned", Plan, PlannedSearch)


def with_contents(planned: Planned, stages: Iterable[Stage], context: Context) -> Planned:
    """Add the sizes of tasks on user files, and notes on tasks, to a plan or search of these stages; raise DataError as `contents_of`."""
    found: tuple[dict[str, int], tuple[str, ...]] = contents_of(stages, context)
    return replace(planned, rows=planned.rows | found[0], notes=(*planned.notes, *found[1]))


def contents_of(stages: Iterable[Stage], context: Context) -> tuple[dict[str, int], tuple[str, ...]]:
    """Read the tasks that these stages score or choose checkpoints by, except generated ones; cached per version of the code.

    Returns:
        The number of different texts of each task on a user file, by its name; and notes on sets smaller than published.

    Raises:
        DataError: as `load_task`, for all tasks together; else found only when the first encoder is scored, hours later.
    """
    read = dict.fromkeys(task for stage in stages for task in _tasks_of(stage) if _is_file(task))
    num_texts: dict[str, int] = {}
    notes: dict[str, None] = {}
    wrong: dict[str, DataError] = {}
    for part in dict.fromkeys(part for task in read for part in _parts(task)):
        try:
            found, lacking = _looked_at(part, context)
        except DataError as error:
            wrong.setdefault(str(error), error)
            continue
        if part.is_own:
            num_texts[part.name] = max(num_texts.get(part.name, 0), found)
        if lacking:
            notes[lacking] = None
    if len(wrong) > 1:
        raise DataError(where=f"{len(wrong)} tasks", found=" ".join(wrong), expected="", remedy="Nothing was started.")
    if wrong:
        raise next(iter(wrong.values()))
    return num_texts, tuple(notes)


def _tasks_of(stage: Stage) -> tuple[Task, ...]:
    return stage.tasks if isinstance(stage, Scores) else stage.dev_tasks if isinstance(stage, Train) else ()


def _parts(task: Task) -> Iterator[Task]:
    """The parts of a task to read; of a fold its whole collection and the first fold: if these can be read, all folds can."""
    if not isinstance(task, LimitedTask) or task.fold is None:
        yield task
        return
    yield task.model_copy(update={"fold": None, "fold_role": None})
    yield task.model_copy(update={"fold": task.fold.model_copy(update={"number": 0}), "fold_role": "test"})


def _is_file(task: Task) -> bool:
    """Whether a task's data can be damaged or changed; generated data cannot. Triples are checked with their corpus."""
    return not isinstance(task, LinkTask) and not task.source.startswith(GENERATED)


def _looked_at(task: Task, context: Context) -> tuple[int, str]:
    """The number of different texts that a task encodes, and a sentence if it is smaller than published, else ""."""
    identity = [f"{task.model_dump_json()} in {context.data_root}", code_digest()]
    if (known := recall_note(identity)) is None:
        loaded = load_task(task, context.data_root, context.folders)
        known = FileFacts(digest="", num_rows=len(set(loaded.sentences)), columns=(), splits=(), note=_lacking(task, loaded))
        remember_note(identity, known)
    return known.num_rows, known.note


def _lacking(task: Task, loaded: LoadedTask) -> str:
    """A sentence if a shipped task is smaller than the published set, else ""; parts of a set and user files have no published size."""
    published, kind = task.num_items, TASK_KINDS[task.kind]
    if published is None or kind.counts_candidates or (isinstance(task, LimitedTask) and (task.fold or task.limit)):
        return ""
    in_all = len(loaded.sentences) * published // task.num_encoded(published)  # rows to fit a classifier on are counted, too
    found = loaded.texts().num_items if kind.has_documents else in_all
    if found >= published:
        return ""
    return f"{task.name}: {found:,} items, but the published set has {published:,}: scores are not comparable with published ones."
