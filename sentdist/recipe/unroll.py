"""Unroll a recipe into trials and stages: one Scores stage for each grid point, method, seed and fold; equal stages have equal keys."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sentdist.corpora import AnyCorpus
from sentdist.corpora.kind import Planning
from sentdist.corpora.own import OwnSection
from sentdist.corpora.relations import RelationalCorpus
from sentdist.errors import LONGEST_VALUE, RecipeError, counted, one_line
from sentdist.recipe.checks import (
    check_encoder,
    check_fit,
    check_frozen,
    check_length,
    check_links,
    check_probes,
    check_space,
    check_start,
    check_training,
    chosen_by,
    relations_of,
    remarks,
    settled,
    settled_view,
)
from sentdist.recipe.dotted import short_names, with_path
from sentdist.recipe.objectives import AnyObjective, names_with, phi_of, uses_targets
from sentdist.recipe.recipe import Recipe, recipe_from_values
from sentdist.recipe.resolver import Pin, Resolver
from sentdist.recipe.sections import EncoderSection, Method, TargetsSection
from sentdist.recipe.specs import EncoderSpec, LexicalSpec, Training
from sentdist.recipe.stage import Json, Stage, memoized, topological
from sentdist.recipe.stages import Bank, CorpusSizes, Scores, Selection, Targets, Train
from sentdist.recipe.tasks import RecipeTasks
from sentdist.recipe.wording import value_text
from sentdist.tasks.kinds import TASK_KINDS, ScoredTask
from sentdist.tasks.links import LinkTask, link_task
from sentdist.tasks.names import dev_parts


class Builder:
    """Build the stages of a recipe without a sweep; each distinct value is looked up once."""

    def __init__(self, recipe: Recipe, resolver: Resolver, sizes: CorpusSizes) -> None:
        self.recipe = recipe
        self.resolver = resolver
        self.sizes = sizes  # filled in
        self.tasks = RecipeTasks(recipe, resolver)
        self.remarks: dict[str, None] = {}  # in the order in which methods were planned
        self.folds: tuple[int | None, ...] = (None,) if recipe.folds is None else tuple(range(recipe.folds.num))
        for section in (recipe.corpus, *recipe.corpora.values()):
            if (recipe.folds is None) != (section.judged_source(resolver) is None):
                found, expected = f"corpus {section.shown}", "folds for a retrieval corpus, and only there"
                raise RecipeError(where="folds", found=found, expected=expected, remedy="Add folds: {num: 5}, or drop folds.")

    @memoized
    def encoder(self, name: str) -> EncoderSpec:
        """Return the checkpoint that a method starts from."""
        section, pin = self._pinned(name)
        declared = None
        if "pooling" not in {*self.recipe.encoder.model_fields_set, *self.recipe.methods[name].encoder}:
            declared = self.resolver.declared_pooling(section.checkpoint, revision=section.revision)
        check_encoder(section, pin, declared_pooling=declared)
        return EncoderSpec.model_validate(section.model_dump() | {"checkpoint": pin.name, "revision": pin.revision})

    @memoized
    def _pinned(self, name: str) -> tuple[EncoderSection, Pin]:
        section = EncoderSection.model_validate(self.recipe.encoder.model_dump() | self.recipe.methods[name].encoder)
        return section, self.resolver.encoder(section.checkpoint, revision=section.revision, where="encoder.checkpoint")

    @memoized
    def _targets(self, corpus: AnyCorpus) -> Targets:
        section = self.recipe.targets or TargetsSection()
        revision = self.resolver.tagger(section.tagger, where="targets.tagger")
        return Targets(corpus=corpus, tagger=section.tagger, tagger_revision=revision, num_words=section.num_words)

    @memoized
    def corpus(self, name: str | None, fold: int | None) -> AnyCorpus:
        """Return a training corpus: the recipe's main one for None, or the one of that name under `corpora`."""
        section, where = (self.recipe.corpus, "corpus") if name is None else (self.recipe.corpora[name], f"corpora.{name}")
        given = Planning(resolver=self.resolver, fold=self.tasks.fold(fold), pairs_of=self.tasks.graded_pairs)
        corpus, rows = section.planned(given, where=where)
        self.sizes.rows[corpus.key] = rows
        if (tokens := section.tokens(given, where=where)) is not None:
            self.sizes.tokens[corpus.key] = tokens
        return corpus

    @memoized
    def training(self, name: str) -> Training:
        return Training.model_validate(self.recipe.training.model_dump() | self.recipe.methods[name].training)

    @memoized
    def train(self, name: str, *, seed: int, fold: int | None, phi: float | None) -> Train | None:
        """Return the training of a method; None for an untouched checkpoint.

        Args:
            phi: Replaces the phi of the objective; None: no change.
        """
        method = self.recipe.methods[name]
        if method.objective is None:
            return None
        where = f"methods.{name}"
        seed = seed if method.seed is None else method.seed
        corpus = self.corpus(method.corpus, fold)
        check_fit(method.objective, corpus, where=f"{where}.objective")
        objective = settled(method.objective, corpus, phi=phi)
        training, (section, pin) = self.training(name), self._pinned(name)
        self.remarks |= dict.fromkeys(remarks(objective, training, corpus, where=where))
        num_rows = self.sizes.rows[corpus.key]
        check_training(method, training, self.recipe.runtime, pin, pooling=section.pooling, num_rows=num_rows, where=where)
        start = None if method.start is None else self.train(method.start, seed=seed, fold=fold, phi=None)
        encoder = self.encoder(name)
        check_start(objective, corpus, encoder, start, where=where)
        selection = self._selection(method, name, fold, objective, corpus, width=pin.width_with(encoder.pooling)) if method.select else None
        check_frozen(training, objective, selection, where=where)
        if selection is not None and selection.view.relations is not None:
            check_space(encoder.pooling, objective, selection.view, where=where)
        return Train(
            encoder=encoder,
            start=start,
            corpus=corpus,
            objective=objective,
            banks=self._banks(name, method, training, corpus, seed=seed, fold=fold),
            targets=self._targets(corpus) if uses_targets(objective) else None,
            training=training,
            regularizers=method.regularizers,
            stopping=method.stopping,
            selection=selection,
            seed=seed,
        )

    def scores(self, name: str, *, seed: int, fold: int | None) -> Scores:
        """Return the scores of a method."""
        method, section = self.recipe.methods[name], self.recipe.evaluation
        train = self.train(method.of or name, seed=seed, fold=fold, phi=None)
        used, pin = self._pinned(method.of or name)
        width = pin.width_with(used.pooling)
        objective, relations = (None, ()) if train is None else (train.objective, relations_of(train.objective, train.corpus))
        view = settled_view(method.view, objective, relations, width=width, where=f"methods.{name}.view")
        if objective is not None and (view.relations is not None or (relations and section.links is not None)):
            check_space(used.pooling, objective, method.view, where=f"methods.{name}")
        probes = section.probes if method.of is None and method.lexical is None else None
        check_length("evaluation.max_length", section.max_length, pin)
        check_probes(None if probes is None else probes.channels, width)
        encoder: EncoderSpec | LexicalSpec | Train | None = train
        if encoder is None:
            encoder = self.encoder(name) if method.lexical is None else LexicalSpec(name=method.lexical)
        return Scores(
            encoder=encoder,
            tasks=(*self._tested(method, name, fold), *self._links(name, fold, train)),
            max_length=section.max_length,
            precision=section.precision,
            view=view,
            probes=probes,
            targets=None if probes is None else self._targets(self.corpus(method.corpus, fold)),
        )

    def _tested(self, method: Method, name: str, fold: int | None) -> tuple[ScoredTask, ...]:
        found = self.tasks.tested(fold)
        for task in found:
            if method.lexical is not None and method.lexical not in TASK_KINDS[task.kind].floors:
                found_there, expected = f"{method.lexical} for {task.name} ({task.kind})", "tasks that this baseline can score"
                raise RecipeError(where=f"methods.{name}.lexical", found=found_there, expected=expected, remedy="Use a separate recipe.")
        return found

    def _banks(self, name: str, method: Method, training: Training, corpus: AnyCorpus, *, seed: int, fold: int | None) -> tuple[Bank, ...]:
        if method.bank is None:
            return ()
        objective = self.recipe.methods[method.bank].objective
        phis: list[float | None] = [None] if method.phis is None else [*sorted(method.phis)]
        if method.phis is not None and (objective is None or phi_of(objective) is None):
            expected = f"a bank whose objective has a phi: {names_with('phi')}"
            raise RecipeError(where=f"methods.{name}.phis", found=f"bank {method.bank}", expected=expected, remedy="Leave phis out.")
        own = None if objective is None or method.phis is None else phi_of(objective)
        if own is not None and own not in phis and not self.recipe.methods[method.bank].reported:
            self.remarks[f"methods.{method.bank}: phi {own:g} is not trained: methods.{name}.phis takes its place."] = None
        encoders = [self.train(method.bank, seed=seed, fold=fold, phi=phi) for phi in phis]
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
            found, expected = f"corpus {corpus.label} without held-out pairs", "a corpus of relations with held-out pairs"
            raise RecipeError(where="evaluation.links.corpus", found=found, expected=expected, remedy="Set held_out there.")
        task = link_task(corpus, section.pool)
        check_links(task, train, where=f"methods.{name}")
        return (task,)

    def _selection(
        self, method: Method, name: str, fold: int | None, objective: AnyObjective, corpus: AnyCorpus, *, width: int | None
    ) -> Selection | None:
        """Return the recipe's selection for a method."""
        section = self.recipe.selection
        if section is None:
            return None
        view = chosen_by(section.view, method.view, method=name)
        view = settled_view(view, objective, relations_of(objective, corpus), width=width, where="selection.view")
        task, *further = self.tasks.choosing(section, fold)
        parts = dev_parts(section.task)
        return Selection(task=task, further_tasks=tuple(further), view=view, every_fraction=section.every_fraction, parts=parts)


def grid_points(recipe: Recipe) -> Iterator[dict[str, Json]]:
    """Yield {path: value} for each point of `sweep`, the last path varying fastest; one empty point without a sweep."""
    for values in itertools.product(*recipe.sweep.values()):
        yield dict(zip(recipe.sweep, values, strict=True))


def check_takes_effect(recipe: Recipe, overrides: Sequence[str]) -> None:
    """Raise RecipeError for overrides (`a.b=c`) of fields that the sweep or search sets at each point: they would have no effect."""
    for override in overrides:
        field = override.partition("=")[0].strip()
        for section, path in recipe.varied:
            if field == path or field.startswith(f"{path}."):
                found, remedy = f"a field that {section}.{path} varies", f"Use --set {section}.{path}=…"
                remedy += ", or `sentdist sweep --no-grid`." if section == "sweep" else "."
                raise RecipeError(where=f"--set {override}", found=found, expected="a field with an effect", remedy=remedy)


def recipe_at(recipe: Recipe, point: Mapping[str, Json], *, section: str = "sweep") -> Recipe:
    """Return the recipe with the fields of a point set, without `sweep` and `search`.

    Args:
        section: Section that the point comes from, for errors.
    """
    values = recipe.model_dump(exclude_unset=True, exclude={"sweep", "search"})
    for path, value in point.items():
        values = with_path(values, path, value, where=f"{section}.{path}")
    spelled = one_line(", ".join(f"{path}={json.dumps(value)}" for path, value in point.items()), LONGEST_VALUE)
    return recipe_from_values(values, where=f"{recipe.name}: {section} at {spelled}" if point else recipe.name)


def paths_that_matter(paths: tuple[str, ...], keys: dict[tuple[str, ...], str]) -> set[str]:
    """Return the sweep paths whose change alone changes the key."""
    matters = set()
    for axis, path in enumerate(paths):
        groups: dict[tuple[str, ...], set[str]] = {}
        for point, key in keys.items():
            groups.setdefault(point[:axis] + point[axis + 1 :], set()).add(key)
        if any(len(group) > 1 for group in groups.values()):
            matters.add(path)
    return matters


BATCH_SIZE = "training.batch_size"
MANY_LEFT = 0.1  # of the rows


def for_its_rows(recipe: Recipe, resolver: Resolver) -> tuple[Recipe, tuple[str, ...]]:
    """Return the recipe with only the methods for the row shape of its user file, and notes on the file."""
    if not isinstance(recipe.corpus, OwnSection):
        return recipe, ()
    pin = recipe.corpus.pinned(resolver, where="corpus")
    shape, notes, batch_size = pin.rows.shape, list(pin.notes), recipe.training.batch_size
    if recipe.corpus.shape not in (None, shape):
        found = str(recipe.corpus.shape)
        raise RecipeError(where="corpus.shape", found=found, expected=shape, remedy="Name the columns: corpus.columns.")
    left = pin.num_rows % batch_size
    if pin.num_rows >= batch_size and left >= MANY_LEFT * pin.num_rows and BATCH_SIZE not in [path for _, path in recipe.varied]:
        notes.append(f"{left} of {pin.num_rows} training rows fill no batch of {batch_size}: each epoch leaves out as many.")
    values = recipe.model_dump(exclude_unset=True)
    values["corpus"] = values["corpus"] | {"shape": shape}
    unfit = [name for name, method in recipe.methods.items() if method.shapes and shape not in method.shapes]
    if unfit:
        notes.append(f"Not for {shape}: {', '.join(recipe.methods[name].title or name for name in unfit)}")
        values["methods"] = {name: method for name, method in values["methods"].items() if name not in unfit}
        dropped = tuple(f"methods.{name}." for name in unfit)
        for section, field in ((values, "sweep"), (values.get("search") or {}, "space")):
            if field in section:
                section[field] = {path: value for path, value in section[field].items() if not path.startswith(dropped)}
    return recipe_from_values(values, where=f"{recipe.name} for {shape}"), tuple(notes)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A method at a grid point with a seed and a fold; trials whose scores have one key are one trial."""

    method: str
    title: str
    params: tuple[tuple[str, Json], ...]  # the grid values that affect this method
    seed: int | None  # None: independent of the seed (an untouched checkpoint)
    fold: int | None
    scores: Scores

    @classmethod
    def of(cls, recipe: Recipe, method: str, params: Iterable[tuple[str, Json]], scores: Scores, *, fold: int | None = None) -> Trial:
        title = recipe.methods[method].title or method
        seed = scores.encoder.seed if isinstance(scores.encoder, Train) else None
        return cls(method=method, title=title, params=tuple(params), seed=seed, fold=fold, scores=scores)

    @property
    def key(self) -> str:
        return self.scores.key

    @property
    def cell(self) -> str:
        """Method and grid values without seed and fold: reports average over the trials of a cell."""
        names = short_names([[name for name, _ in self.params]])
        values = ", ".join(f"{names[name]}={value_text(value)}" for name, value in self.params)
        return f"{self.title} ({values})" if values else self.title

    @property
    def name(self) -> str:
        seed = "" if self.seed is None else f" · seed {self.seed}"
        return self.cell + seed + ("" if self.fold is None else f" · fold {self.fold}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An unrolled recipe: its trials and, through them, all stages."""

    recipe: Recipe
    trials: tuple[Trial, ...]
    rows: dict[str, int]  # see `CorpusSizes`
    tokens: dict[str, float] = field(default_factory=dict)  # see there
    notes: tuple[str, ...] = ()  # on user files, on methods left out, and on what could not be checked

    def __repr__(self) -> str:  # a notebook would show pages
        return f"Plan({self.recipe.name!r}, {counted(len(self.trials), 'trial')}, {counted(len(self.stages), 'stage')})"

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Every stage, each once, inputs first."""
        return topological(tuple(trial.scores for trial in self.trials))

    @cached_property
    def mentions(self) -> Counter[str]:
        """Number of trials that need each stage, by key: the builds without sharing."""
        return Counter(stage.key for trial in self.trials for stage in topological((trial.scores,)))


def unroll(recipe: Recipe, resolver: Resolver) -> Plan:
    """Turn a recipe into its trials.

    Raises:
        RecipeError, DataError, EncoderError: an error that can be detected before any work starts.
    """
    recipe, own_notes = for_its_rows(recipe, resolver)
    sizes = CorpusSizes()
    remarked: dict[str, None] = {}
    scored: dict[tuple[str, str], tuple[dict[str, Json], int | None, Scores]] = {}
    keys_at: dict[tuple[str, int, int | None], dict[tuple[str, ...], str]] = {}
    for point in grid_points(recipe):
        builder = Builder(recipe_at(recipe, point), resolver, sizes)
        reported = [name for name, method in recipe.methods.items() if method.reported]
        for name, seed, fold in itertools.product(reported, recipe.seeds, builder.folds):
            scores = builder.scores(name, seed=seed, fold=fold)
            scored.setdefault((name, scores.key), (point, fold, scores))
            keys_at.setdefault((name, seed, fold), {})[tuple(map(repr, point.values()))] = scores.key
        remarked |= builder.remarks
    varying: dict[str, set[str]] = {name: set() for name in recipe.methods}
    for (name, _, _), keys in keys_at.items():
        varying[name] |= paths_that_matter(tuple(recipe.sweep), keys)
    for path, values in recipe.sweep.items():
        if len(values) > 1 and not any(path in paths for paths in varying.values()):
            found, remedy = f"{len(values)} values that lead to the same stages", "Drop the line; fields of runtime change no result."
            raise RecipeError(where=f"sweep.{path}", found=found, expected="values that each change a result", remedy=remedy)
    trials = [
        Trial.of(recipe, name, ((path, value) for path, value in point.items() if path in varying[name]), scores, fold=fold)
        for (name, _), (point, fold, scores) in scored.items()
    ]
    order = list(recipe.methods)
    trials.sort(key=lambda trial: order.index(trial.method))
    notes = (*own_notes, *resolver.notes, *remarked)
    return Plan(recipe=recipe, trials=tuple(trials), rows=sizes.rows, tokens=sizes.tokens, notes=notes)
