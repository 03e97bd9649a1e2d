"""How a recipe becomes trials: every grid point, method, seed and fold ends in one Scores stage, and equal stages have equal keys."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from sentdist.errors import RecipeError, counted
from sentdist.plan.chosen_tasks import check_lexical, check_names, dev_parts, limited, named_task, pinned_task, selectable_task, task_names
from sentdist.plan.compatibility import (
    check_channels,
    check_checkpoint,
    check_encoder,
    check_encoder_of_start,
    check_fit,
    check_frozen,
    check_length,
    check_links,
    check_pooling,
    check_space,
    check_start,
    check_training,
    check_view,
    relations_of,
    remarks,
    settled,
    settled_view,
)
from sentdist.plan.corpora import AnyCorpus, CorpusSection
from sentdist.plan.corpora.kind import Planning
from sentdist.plan.corpora.own import OwnSection
from sentdist.plan.corpora.relations import LinkTask, RelationalCorpus, link_task
from sentdist.plan.dotted import short_names
from sentdist.plan.grid import grid_points, paths_that_matter, recipe_at
from sentdist.plan.objectives import AnyObjective, names_with, phi_of, uses_targets
from sentdist.plan.own_rows import for_its_rows
from sentdist.plan.own_tasks import OWN, own_task, own_test_tasks
from sentdist.plan.recipe import Recipe
from sentdist.plan.resolver import Pin, Resolver
from sentdist.plan.sections import EncoderSection, Method, TargetsSection
from sentdist.plan.selection import Selection
from sentdist.plan.specs import EncoderSpec, Fold, LexicalSpec, Task, Training, View
from sentdist.plan.stage import Json, Stage, topological
from sentdist.plan.stages import Bank, Scores, Targets, Train
from sentdist.plan.task_kinds import TASK_KINDS, ChosenTask, DevTask, have_mean
from sentdist.plan.tasks import TASK_GROUPS, TASKS
from sentdist.plan.wording import value_text


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One cell of a sweep: a method at a grid point, with a seed and a fold; two cells are one if their scores have one key."""

    method: str
    title: str
    params: tuple[tuple[str, Json], ...]  # the grid values that make a difference to this method
    seed: int | None  # None: no seed changes it (an untouched checkpoint)
    fold: int | None
    scores: Scores

    @property
    def key(self) -> str:
        return self.scores.key

    @property
    def cell(self) -> str:
        """Method and grid values without seed and fold: what a report averages over."""
        names = short_names([[name for name, _ in self.params]])
        values = ", ".join(f"{names[name]}={value_text(value)}" for name, value in self.params)
        return f"{self.title} ({values})" if values else self.title

    @property
    def name(self) -> str:
        seed = "" if self.seed is None else f" · seed {self.seed}"
        return self.cell + seed + ("" if self.fold is None else f" · fold {self.fold}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A recipe unrolled: its trials and, through them, all stages."""

    recipe: Recipe
    trials: tuple[Trial, ...]
    rows: dict[str, int]  # corpus key -> training rows, as far as planning can know
    notes: tuple[str, ...] = ()  # what was found out about own files, which methods are not for them, what could not be looked at

    def __repr__(self) -> str:  # a notebook would show pages
        return f"Plan({self.recipe.name!r}, {counted(len(self.trials), 'trial')}, {counted(len(self.stages), 'stage')})"

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Every stage, each once, inputs before users."""
        return topological(tuple(trial.scores for trial in self.trials))

    @cached_property
    def mentions(self) -> Counter[str]:
        """How many trials need each stage, by key: what would be built without sharing."""
        return Counter(stage.key for trial in self.trials for stage in topological((trial.scores,)))


def unroll(recipe: Recipe, resolver: Resolver) -> Plan:
    """Turn a recipe into its trials.

    Raises:
        RecipeError, DataError, EncoderError: what can be known to be wrong before any work starts.
    """
    recipe, told = for_its_rows(recipe, resolver)
    rows: dict[str, int] = {}
    remarked: dict[str, None] = {}
    found: dict[tuple[str, str], tuple[dict[str, Json], int | None, Scores]] = {}
    varying: dict[str, set[str]] = {name: set() for name in recipe.methods}
    keys_at: dict[tuple[str, int, int | None], dict[tuple[str, ...], str]] = {}
    for point in grid_points(recipe):
        at_point = recipe_at(recipe, point)
        builder = Builder(at_point, resolver, rows)
        for name, seed, fold in itertools.product(recipe.methods, recipe.seeds, builder.folds):
            if not recipe.methods[name].reported:
                continue
            scores = builder.scores(name, seed=seed, fold=fold)
            found.setdefault((name, scores.key), (point, fold, scores))
            keys_at.setdefault((name, seed, fold), {})[tuple(map(repr, point.values()))] = scores.key
        remarked |= builder.remarks
    for (name, _, _), keys in keys_at.items():
        varying[name] |= paths_that_matter(tuple(recipe.sweep), keys)
    for path, values in recipe.sweep.items():
        if len(values) > 1 and not any(path in paths for paths in varying.values()):
            raise RecipeError(
                where=f"sweep.{path}", found=f"{len(values)} values that lead to the same stages",
                expected="values of which each changes a result", remedy="Drop the line; what may not change a result stands in runtime.",
            )  # fmt: skip
    trials = tuple(
        Trial(
            method=name,
            title=recipe.methods[name].title or name,
            params=tuple((path, value) for path, value in point.items() if path in varying[name]),
            seed=scores.encoder.seed if isinstance(scores.encoder, Train) else None,
            fold=fold,
            scores=scores,
        )
        for (name, _), (point, fold, scores) in found.items()
    )
    order = {name: place for place, name in enumerate(recipe.methods)}
    ordered = tuple(sorted(trials, key=lambda trial: order[trial.method]))
    return Plan(recipe=recipe, trials=ordered, rows=rows, notes=(*told, *resolver.notes, *remarked))


def _check_folds(section: CorpusSection, resolver: Resolver, *, has_folds: bool) -> None:
    """Cross-validation goes with retrieval corpora, and only with them."""
    if has_folds == (section.judged_source(resolver) is not None):
        return
    source = section.shown
    if has_folds:
        raise RecipeError(where="folds", found=f"corpus {source}", expected="a retrieval corpus", remedy="Drop folds.")
    raise RecipeError(where="folds", found=f"none for corpus {source}", expected="folds over its queries", remedy="Add folds: {num: 5}.")


def _without_curve(view: View) -> Json:
    """How a view reads relations, less the curve, which chooses no checkpoint."""
    return None if view.relations is None else {**view.relations.model_dump(), "curve": None}


class Builder:
    """The stages of one recipe without a sweep; each distinct value is asked of the resolver once."""

    def __init__(self, recipe: Recipe, resolver: Resolver, rows: dict[str, int]) -> None:
        self.recipe = recipe
        self.resolver = resolver
        self.rows = rows
        self.remarks: dict[str, None] = {}  # in the order in which methods were planned
        self.folds: tuple[int | None, ...] = (None,) if recipe.folds is None else tuple(range(recipe.folds.num))
        for section in (recipe.corpus, *recipe.corpora.values()):
            _check_folds(section, resolver, has_folds=recipe.folds is not None)

    def encoder(self, method: Method) -> EncoderSpec:
        """The checkpoint that a method starts from."""
        section, pin = self._pinned(method)
        check_checkpoint(section, pin)
        if "pooling" not in {*self.recipe.encoder.model_fields_set, *method.encoder}:
            check_pooling(section, self.resolver.declared_pooling(section.checkpoint, revision=section.revision))
        return EncoderSpec.model_validate(section.model_dump() | {"checkpoint": pin.name, "revision": pin.revision})

    def _pinned(self, method: Method) -> tuple[EncoderSection, Pin]:
        section = EncoderSection.model_validate(self.recipe.encoder.model_dump() | method.encoder)
        return section, self.resolver.encoder(section.checkpoint, revision=section.revision, where="encoder.checkpoint")

    def _targets(self, corpus: AnyCorpus) -> Targets:
        """Tags and words of a corpus."""
        section = self.recipe.targets or TargetsSection()
        revision = self.resolver.tagger(section.tagger, where="targets.tagger")
        return Targets(corpus=corpus, tagger=section.tagger, tagger_revision=revision, num_words=section.num_words)

    def corpus(self, name: str | None, fold: int | None) -> AnyCorpus:
        """The training rows of a method: the recipe's corpus, or the one of that name under `corpora`."""
        section, where = (self.recipe.corpus, "corpus") if name is None else (self.recipe.corpora[name], f"corpora.{name}")
        given = Planning(resolver=self.resolver, fold=self._fold(fold), pairs_of=self._pairs_of)
        corpus, rows = section.planned(given, where=where)
        self.rows[corpus.key] = rows
        return corpus

    def _pairs_of(self, names: Sequence[str], where: str) -> tuple[Task, ...]:
        """The tasks of graded pairs that names of tasks or groups stand for."""
        for name in names:
            if not all(map(_has_graded_pairs, TASK_GROUPS.get(name, (name,)))):
                groups = (known for known, tasks in TASK_GROUPS.items() if all(map(_has_graded_pairs, tasks)))
                pairs = (*filter(_has_graded_pairs, TASKS), *groups)
                raise RecipeError(where=where, found=name, expected=f"tasks of pairs: {', '.join(pairs)}", remedy="Correct it.")
        found = (self._selectable(name, fold=None, role="test") for name in task_names(names))
        return tuple(task for task in found if isinstance(task, Task))  # all: their kind was looked at

    def training(self, method: Method) -> Training:
        return Training.model_validate(self.recipe.training.model_dump() | method.training)

    def train(self, name: str, *, seed: int, fold: int | None, phi: float | None = None, chain: tuple[str, ...] = ()) -> Train | None:
        """The training of a method; None for the untouched checkpoint."""
        if name in chain:
            circle = " → ".join((*chain, name))
            raise RecipeError(
                where=f"methods.{name}", found=circle, expected="no circle", remedy="Let one of them start from the checkpoint."
            )
        method = self.recipe.methods[name]
        if method.objective is None:
            return None
        seed, chain = seed if method.seed is None else method.seed, (*chain, name)
        corpus = self.corpus(method.corpus, fold)
        training = self.training(method)
        check_fit(method.objective, corpus, where=f"methods.{name}.objective")
        section, pin = self._pinned(method)
        check_encoder(method.objective, pooling=section.pooling, width=pin.width, where=f"methods.{name}.objective")
        check_training(training, method.regularizers, self.recipe.runtime, pin, where=f"methods.{name}")
        objective = settled(method.objective, corpus, phi=phi)
        self.remarks |= dict.fromkeys(remarks(objective, corpus, where=f"methods.{name}"))
        self._check_batch(name, training, corpus)
        start = None if method.start is None else self.train(method.start, seed=seed, fold=fold, chain=chain)
        check_start(objective, corpus, start, where=f"methods.{name}.objective")
        encoder = self.encoder(method)
        check_encoder_of_start(encoder, start, where=f"methods.{name}")
        selection = self._selection(fold, method.view, objective, corpus, width=pin.width) if method.select else None
        check_frozen(training, objective, selection, where=f"methods.{name}")
        if selection is not None:
            check_space(encoder.pooling, objective, selection.view, ranks_by_relations=False, where=f"methods.{name}")
        return Train(
            encoder=encoder,
            start=start,
            corpus=corpus,
            objective=objective,
            banks=self._banks(name, method, training, corpus, seed=seed, fold=fold, chain=chain),
            targets=self._targets(corpus) if uses_targets(objective) else None,
            training=training,
            regularizers=method.regularizers,
            stopping=method.stopping,
            selection=selection,
            seed=seed,
        )

    def scores(self, name: str, *, seed: int, fold: int | None) -> Scores:
        method = self.recipe.methods[name]
        train = self.train(method.of or name, seed=seed, fold=fold)
        relations = relations_of(train.objective, train.corpus) if train else ()
        check_view(method.view, relations, where=f"methods.{name}.view")
        section = self.recipe.evaluation
        if train is not None:
            ranks = bool(relations) and section.links is not None
            check_space(train.encoder.pooling, train.objective, method.view, ranks_by_relations=ranks, where=f"methods.{name}")
        probes = section.probes if method.of is None and method.lexical is None else None
        pin = self._pinned(self.recipe.methods[method.of or name])[1]
        width = pin.width
        check_length("evaluation.max_length", section.max_length, pin)
        check_channels(method.view, probes, width=width, where=f"methods.{name}.view")
        view = settled_view(method.view, train.objective if train else None, width=width, where=f"methods.{name}.view")
        found = tuple(chosen for task in task_names(section.tasks) for chosen in self._tasks(task, fold=fold))
        check_names(found, where="evaluation.tasks")
        check_lexical(method.lexical, found, where=f"methods.{name}")
        return Scores(
            encoder=(LexicalSpec(name=method.lexical) if method.lexical else self.encoder(method)) if train is None else train,
            tasks=(*found, *self._links(name, fold, train)),
            max_length=section.max_length,
            precision=section.precision,
            view=view,
            probes=probes,
            targets=None if probes is None else self._targets(self.corpus(method.corpus, fold)),
        )

    def _banks(
        self, name: str, method: Method, training: Training, corpus: AnyCorpus, *, seed: int, fold: int | None, chain: tuple[str, ...]
    ) -> tuple[Bank, ...]:
        if method.bank is None:
            return ()
        objective = self.recipe.methods[method.bank].objective
        phis: Iterable[float | None] = (None,) if method.phis is None else sorted(method.phis)
        if method.phis is not None and (objective is None or phi_of(objective) is None):
            found = "the untouched checkpoint" if objective is None else objective.name
            raise RecipeError(
                where=f"methods.{name}.phis",
                found=f"bank {method.bank} ({found})",
                expected=f"a bank whose objective has a phi: {names_with('phi')}",
                remedy="Leave phis out.",
            )
        encoders = [self.train(method.bank, seed=seed, fold=fold, phi=phi, chain=chain) for phi in phis]
        return tuple(
            Bank(encoder=encoder, corpus=corpus, dtype=method.bank_dtype, max_length=training.max_length, precision=training.precision)
            for encoder in encoders
            if encoder is not None
        )

    def _links(self, name: str, fold: int | None, train: Train | None) -> tuple[LinkTask, ...]:
        section = self.recipe.evaluation.links
        if section is None:
            return ()
        corpus = self.corpus(section.corpus, fold)
        if not isinstance(corpus, RelationalCorpus) or not corpus.held_out:
            found = "a corpus that holds out none" if isinstance(corpus, RelationalCorpus) else "a corpus without relations"
            raise RecipeError(
                where="evaluation.links.corpus",
                found=found,
                expected="relations of which some pairs are held out",
                remedy="Set held_out there.",
            )
        task = link_task(corpus, section.pool)
        check_links(task, train, where=f"methods.{name}")
        return (task,)

    def _selection(self, fold: int | None, own: View, objective: AnyObjective, corpus: AnyCorpus, *, width: int | None) -> Selection | None:
        """The recipe's selection; an encoder that is scored by relations is also chosen by them."""
        section = self.recipe.selection
        if section is None:
            return None
        check_view(section.view, relations_of(objective, corpus), where="selection.view")
        is_own = section.view.relations is None and own.relations is not None
        view = View.model_validate(section.view.model_dump() | {"relations": _without_curve(own)}) if is_own else section.view
        view = settled_view(view, objective, width=width, where="selection.view")
        task, *further = [limited(self._dev_task(name, fold=fold), section.limit) for name in section.names]
        if not have_mean(one.kind for one in (task, *further)):
            raise RecipeError(
                where="selection.task", found=f"tasks of {task.kind} and of others", expected="tasks of one kind, whose scores have a mean", remedy="Name own alone."
            )  # fmt: skip
        parts = dev_parts(section.task)
        return Selection(task=task, further_tasks=tuple(further), view=view, every_fraction=section.every_fraction, parts=parts)

    def _tasks(self, name: str, *, fold: int | None) -> tuple[ChosenTask, ...]:
        """The test tasks that a name stands for."""
        if name == OWN:
            return own_test_tasks(self._own(), self.resolver, where="corpus")
        card = named_task(name).card
        if card.role == "dev":
            raise RecipeError(
                where="evaluation.tasks", found=f"{name}, the accuracy on which a penalty is chosen", expected="a task that is tested",
                remedy=f"Use {name.removesuffix('-dev')}; {name} is for selection.task.",
            )  # fmt: skip
        is_selectable = TASK_KINDS[card.kind].chooses
        return (self._selectable(name, fold=fold, role="test") if is_selectable else pinned_task(name, self.resolver),)

    def _dev_task(self, name: str, *, fold: int | None) -> DevTask:
        return own_task(self._own(), self.resolver, "dev", where="corpus") if name == OWN else self._selectable(name, fold=fold, role="dev")

    def _own(self) -> OwnSection:
        assert isinstance(self.recipe.corpus, OwnSection), "the recipe has checked it"
        return self.recipe.corpus

    def _selectable(self, name: str, *, fold: int | None, role: str) -> DevTask:
        """A task that can choose; of retrieval, in a cross-validation over the queries of a corpus, the part of a fold of it."""
        card = named_task(name).card
        section = self._judged(card.source) if TASK_KINDS[card.kind].has_documents and fold is not None else None
        return selectable_task(
            name,
            self.resolver,
            document_field=(section or self.recipe.corpus).documents_by,
            fold=None if section is None else self._fold(fold),
            fold_role=None if section is None else role,
        )

    def _judged(self, source: str) -> CorpusSection | None:
        """The first corpus of the recipe whose rows come from that retrieval source."""
        sections = (self.recipe.corpus, *self.recipe.corpora.values())
        return next((section for section in sections if section.judged_source(self.resolver) == source), None)

    def _fold(self, number: int | None) -> Fold | None:
        if number is None or self.recipe.folds is None:
            return None
        return Fold(number=number, num_folds=self.recipe.folds.num, seed=self.recipe.folds.seed, by=self.recipe.folds.by)

    def _check_batch(self, name: str, training: Training, corpus: AnyCorpus) -> None:
        workers = self.recipe.runtime.most_workers
        if training.batch_size // workers < 2:
            raise RecipeError(
                where=f"methods.{name}: training.batch_size", found=f"{training.batch_size} rows for {workers} workers",
                expected="at least two each (a single row has no other candidate)", remedy="Enlarge the batch or use fewer workers.",
            )  # fmt: skip
        if self.rows[corpus.key] < training.batch_size:
            raise RecipeError(
                where=f"methods.{name}: training.batch_size", found=f"{training.batch_size} rows a batch, {self.rows[corpus.key]} in the corpus",
                expected="at least one full batch", remedy="Lower the batch size or give more data.",
            )  # fmt: skip


def _has_graded_pairs(task: str) -> bool:
    return task in TASKS and TASK_KINDS[TASKS[task].kind].is_graded_pairs
