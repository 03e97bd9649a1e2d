"""Unroll a recipe into trials and stages: one Scores stage for each grid point, method, seed and fold; equal stages have equal keys."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sentdist.corpora import AnyCorpus, CorpusSection
from sentdist.corpora.kind import Planning
from sentdist.corpora.own import OwnSection
from sentdist.corpora.relations import RelationalCorpus
from sentdist.errors import LONGEST_VALUE, RecipeError, brief, counted, one_line
from sentdist.recipe.checks import (
    check_batch,
    check_checkpoint,
    check_encoder,
    check_encoder_of_start,
    check_fit,
    check_frozen,
    check_length,
    check_lexical,
    check_pooling,
    check_start,
    check_training,
    rate_remarks,
    relations_of,
    remarks,
    settled,
    unheeded,
)
from sentdist.recipe.dotted import short_names, with_path
from sentdist.recipe.objectives import AnyObjective, names_with, phi_of, uses_targets
from sentdist.recipe.recipe import Recipe, check_method_in_path, recipe_from_values
from sentdist.recipe.resolver import Pin, Resolver
from sentdist.recipe.sections import EncoderSection, Method, TargetsSection
from sentdist.recipe.specs import EncoderSpec, LexicalSpec, Training
from sentdist.recipe.stage import Json, Stage, memoized, topological
from sentdist.recipe.stages import Bank, CorpusSizes, Scores, Selection, Targets, Train
from sentdist.recipe.tasks import RecipeTasks
from sentdist.recipe.view_checks import check_channels, check_links, check_space, check_view, chosen_by, left_over_at_all, settled_view
from sentdist.recipe.wording import value_text
from sentdist.tasks.links import LinkTask, link_task
from sentdist.tasks.names import dev_parts


def _check_folds(section: CorpusSection, resolver: Resolver, *, has_folds: bool) -> None:
    """Raise RecipeError for folds without a retrieval corpus, and for a retrieval corpus without folds."""
    if has_folds == (section.judged_source(resolver) is not None):
        return
    source = section.shown
    if has_folds:
        raise RecipeError(where="folds", found=f"corpus {source}", expected="a retrieval corpus", remedy="Drop folds.")
    raise RecipeError(where="folds", found=f"none for corpus {source}", expected="folds over its queries", remedy="Add folds: {num: 5}.")


def _check_limit(section: CorpusSection, *, where: str) -> None:
    """Raise RecipeError for a limit_seed without a limit: it would change only the key."""
    # Not a check of the recipe, so that reports of old sweeps with one still work.
    if getattr(section, "limit_seed", 0) and getattr(section, "limit", None) is None:
        raise RecipeError(where=f"{where}.limit_seed", found="no limit", expected="a limit to draw rows for", remedy="Leave it out.")


class Builder:
    """Build the stages of a recipe without a sweep; each distinct value is looked up once."""

    def __init__(self, recipe: Recipe, resolver: Resolver, sizes: CorpusSizes) -> None:
        self.recipe = recipe
        self.resolver = resolver
        self.sizes = sizes  # filled in
        self.tasks = RecipeTasks(recipe, resolver)
        self._under_way: list[str] = []  # methods whose trainings are being planned, each needed by the one before it
        self.remarks: dict[str, None] = {}  # in the order in which methods were planned
        self.folds: tuple[int | None, ...] = (None,) if recipe.folds is None else tuple(range(recipe.folds.num))
        for where, section in {"corpus": recipe.corpus, **{f"corpora.{name}": one for name, one in recipe.corpora.items()}}.items():
            _check_folds(section, resolver, has_folds=recipe.folds is not None)
            _check_limit(section, where=where)

    @memoized
    def encoder(self, name: str) -> EncoderSpec:
        """Return the checkpoint that a method starts from."""
        section, pin = self._pinned(name)
        check_checkpoint(section, pin)
        if "pooling" not in {*self.recipe.encoder.model_fields_set, *self.recipe.methods[name].encoder}:
            check_pooling(section, self.resolver.declared_pooling(section.checkpoint, revision=section.revision))
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
        if name in self._under_way:
            cycle, remedy = " → ".join((*self._under_way, name)), "Let one of them start from the checkpoint."
            raise RecipeError(where=f"methods.{name}", found=cycle, expected="no cycle", remedy=remedy)
        self._under_way.append(name)
        try:
            return self._train(name, seed=seed, fold=fold, phi=phi)
        finally:
            self._under_way.pop()

    def _train(self, name: str, *, seed: int, fold: int | None, phi: float | None) -> Train | None:
        method = self.recipe.methods[name]
        if method.objective is None:
            return None
        seed = seed if method.seed is None else method.seed
        corpus = self.corpus(method.corpus, fold)
        training = self.training(name)
        check_fit(method.objective, corpus, where=f"methods.{name}.objective")
        section, pin = self._pinned(name)
        check_encoder(method.objective, pooling=section.pooling, pin=pin, where=f"methods.{name}.objective")
        check_training(training, method.regularizers, self.recipe.runtime, pin, where=f"methods.{name}")
        objective = settled(method.objective, corpus, phi=phi)
        self.remarks |= dict.fromkeys(remarks(objective, corpus, where=f"methods.{name}"))
        self.remarks |= dict.fromkeys(unheeded(method.objective, corpus, where=f"methods.{name}"))
        self.remarks |= dict.fromkeys(rate_remarks(training, where=f"methods.{name}"))
        check_batch(training, self.recipe.runtime, self.sizes.rows[corpus.key], where=f"methods.{name}")
        start = None if method.start is None else self.train(method.start, seed=seed, fold=fold, phi=None)
        check_start(objective, corpus, start, where=f"methods.{name}.objective")
        encoder = self.encoder(name)
        check_encoder_of_start(encoder, start, where=f"methods.{name}")
        selection = self._selection(name, fold, objective, corpus, width=pin.width_with(encoder.pooling)) if method.select else None
        check_frozen(training, objective, selection, where=f"methods.{name}")
        if selection is not None:
            check_space(encoder.pooling, objective, selection.view, ranks_by_relations=False, where=f"methods.{name}")
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
        method = self.recipe.methods[name]
        train = self.train(method.of or name, seed=seed, fold=fold, phi=None)
        relations = relations_of(train.objective, train.corpus) if train else ()
        check_view(method.view, relations, where=f"methods.{name}.view")
        section = self.recipe.evaluation
        if train is not None:
            ranks = bool(relations) and section.links is not None
            check_space(train.encoder.pooling, train.objective, method.view, ranks_by_relations=ranks, where=f"methods.{name}")
        probes = section.probes if method.of is None and method.lexical is None else None
        used, pin = self._pinned(method.of or name)
        width = pin.width_with(used.pooling)
        check_length("evaluation.max_length", section.max_length, pin)
        check_channels(method.view, probes, width=width, where=f"methods.{name}.view")
        view = settled_view(method.view, train.objective if train else None, width=width, where=f"methods.{name}.view")
        found = self.tasks.tested(fold)
        check_lexical(method.lexical, found, where=f"methods.{name}")
        return Scores(
            encoder=(LexicalSpec(name=method.lexical) if method.lexical else self.encoder(name)) if train is None else train,
            tasks=(*found, *self._links(name, fold, train)),
            max_length=section.max_length,
            precision=section.precision,
            view=view,
            probes=probes,
            targets=None if probes is None else self._targets(self.corpus(method.corpus, fold)),
        )

    def _banks(self, name: str, method: Method, training: Training, corpus: AnyCorpus, *, seed: int, fold: int | None) -> tuple[Bank, ...]:
        if method.bank is None and method.bank_dtype != type(method).model_fields["bank_dtype"].default:
            raise RecipeError(where=f"methods.{name}.bank_dtype", found="no bank", expected="a bank", remedy="Leave it out.")
        if method.bank is None:
            return ()
        objective = self.recipe.methods[method.bank].objective
        phis: Iterable[float | None] = (None,) if method.phis is None else sorted(method.phis)
        if method.phis is not None and (objective is None or phi_of(objective) is None):
            found = "the untouched checkpoint" if objective is None else objective.name
            expected, remedy = f"a bank whose objective has a phi: {names_with('phi')}", "Leave phis out."
            raise RecipeError(where=f"methods.{name}.phis", found=f"bank {method.bank} ({found})", expected=expected, remedy=remedy)
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
            found = "a corpus without held-out pairs" if isinstance(corpus, RelationalCorpus) else "a corpus without relations"
            expected = "a corpus of relations with held-out pairs"
            raise RecipeError(where="evaluation.links.corpus", found=found, expected=expected, remedy="Set held_out there.")
        task = link_task(corpus, section.pool)
        check_links(task, train, where=f"methods.{name}")
        return (task,)

    def _selection(self, name: str, fold: int | None, objective: AnyObjective, corpus: AnyCorpus, *, width: int | None) -> Selection | None:
        """Return the recipe's selection for the method `name`."""
        section = self.recipe.selection
        if section is None:
            return None
        check_view(section.view, relations_of(objective, corpus), where="selection.view")
        view = settled_view(
            chosen_by(section.view, self.recipe.methods[name].view, method=name), objective, width=width, where="selection.view"
        )
        task, *further = self.tasks.choosing(section, fold)
        parts = dev_parts(section.task)
        return Selection(task=task, further_tasks=tuple(further), view=view, every_fraction=section.every_fraction, parts=parts)


MOST_TRIALS = 100_000  # planning takes 0.6 ms per trial


def grid_points(recipe: Recipe) -> Iterator[dict[str, Json]]:
    """Yield {path: value} for each point of `sweep`, the last path varying fastest; one empty point without a sweep.

    Raises:
        RecipeError: a path without values, a repeated value, a path into an unknown method, more trials than MOST_TRIALS.
    """
    for path, values in recipe.sweep.items():
        if not values:
            raise RecipeError(where=f"sweep.{path}", found="no value", expected="at least one", remedy="Add values or drop the line.")
        _check_each_once(path, values)
        check_method_in_path(path, list(recipe.methods), where=f"sweep.{path}")
    folds = 1 if recipe.folds is None else recipe.folds.num
    num_trials = math.prod(map(len, recipe.sweep.values())) * len(recipe.methods) * len(recipe.seeds) * folds
    if num_trials > MOST_TRIALS:
        raise RecipeError(
            where=f"{recipe.name}: sweep",
            found=f"{num_trials:,} trials (points of the grid × methods × seeds × folds)",
            expected=f"at most {MOST_TRIALS:,}",
            remedy="Remove values, or split it into several recipes.",
        )
    for values in itertools.product(*recipe.sweep.values()):
        yield dict(zip(recipe.sweep, values, strict=True))


def _check_each_once(path: str, values: Sequence[Json]) -> None:
    """Raise RecipeError for a repeated value on an axis: it would only add a duplicate cell to the count."""
    first: dict[str, Json] = {}
    again: dict[str, Json] = {}
    for value in values:
        spelt = json.dumps(_with_floats(value))  # 1 and 1.0 are one number
        if spelt in first:
            again[spelt] = first[spelt]
        first.setdefault(spelt, value)
    if again:
        each = [f"only one {brief(value)}" for value in again.values()]
        raise RecipeError(
            where=f"sweep.{path}", found=brief(list(values)), expected="each value once", remedy=f"Keep {' and '.join(each)}."
        )


def _with_floats(value: Json) -> Json:
    if isinstance(value, list):
        return [_with_floats(one) for one in value]
    if isinstance(value, dict):
        return {name: _with_floats(one) for name, one in value.items()}
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def check_takes_effect(recipe: Recipe, overrides: Sequence[str]) -> None:
    """Raise RecipeError for overrides (`a.b=c`) of fields that the sweep or search sets at each point: they would have no effect."""
    varied: dict[str, tuple[str, Json]] = {path: (f"sweep.{path}", list(values)) for path, values in recipe.sweep.items()}
    if recipe.search is not None:
        varied |= {
            path: (f"search.space.{path}", space.model_dump(mode="json", exclude_unset=True)) for path, space in recipe.search.space.items()
        }
    for override in overrides:
        field, _, value = (part.strip() for part in override.partition("="))
        for path, (where, values) in varied.items():
            if field != path and not field.startswith(f"{path}."):
                continue
            instead = f"--set {where}=[{value}]" if field == path and where.startswith("sweep.") else f"--set {where}=…"
            raise RecipeError(
                where=f"--set {override}",
                found=f"a field that {where} varies: {brief(values)}",
                expected="a field with an effect",
                remedy=f"Use {instead}" + (", or `sentdist sweep --no-grid`." if where.startswith("sweep.") else "."),
            )


def recipe_at(recipe: Recipe, point: Mapping[str, Json], *, section: str = "sweep") -> Recipe:
    """Return the recipe with the fields of a point set, without `sweep` and `search`.

    Args:
        section: Section that the point comes from, for errors.
    """
    values = recipe.model_dump(exclude_unset=True, exclude={"sweep", "search"})
    for path, value in point.items():
        values = with_path(values, path, value, where=f"{section}.{path}")
    return recipe_from_values(values, where=f"{recipe.name}: {section} at {_spelled(point)}" if point else recipe.name)


def _spelled(point: Mapping[str, Json]) -> str:
    """Return a point as in `--set`, truncated if long."""
    return one_line(", ".join(f"{path}={json.dumps(value)}" for path, value in point.items()), LONGEST_VALUE)


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
    unfit = [name for name, method in recipe.methods.items() if method.shapes and pin.rows.shape not in method.shapes]
    if (shape := recipe.corpus.shape) not in (None, pin.rows.shape):
        raise RecipeError(where="corpus.shape", found=f"{shape}", expected=pin.rows.shape, remedy="Name the columns: corpus.columns.")
    values = recipe.model_dump(exclude_unset=True)
    values["corpus"] = values["corpus"] | {"shape": pin.rows.shape}
    varied = {*recipe.sweep, *(recipe.search.space if recipe.search is not None else ())}
    notes = (*pin.notes, *(() if BATCH_SIZE in varied else _left_over(pin.num_rows, recipe.training.batch_size)))
    if not unfit:
        return recipe_from_values(values, where=recipe.name), notes
    values["methods"] = {name: method for name, method in values["methods"].items() if name not in unfit}
    values["sweep"] = _without(unfit, values.get("sweep", {}))
    if values.get("search") is not None:
        values["search"] = values["search"] | {"space": _without(unfit, values["search"]["space"])}
    left_out = f"Not for {pin.rows.shape}: {', '.join(recipe.methods[name].title or name for name in unfit)}"
    return recipe_from_values(values, where=f"{recipe.name} for {pin.rows.shape}"), (*notes, left_out)


def _left_over(num_rows: int, batch_size: int) -> Iterator[str]:
    """Yield a note if each epoch drops many rows because they fill no batch."""
    left = num_rows % batch_size
    if num_rows >= batch_size and left >= MANY_LEFT * num_rows:
        yield (
            f"{left} of {num_rows} training rows fill no batch of {batch_size}: each epoch leaves out as many. "
            "A batch size that divides the number of rows leaves out none."
        )


def _without(methods: list[str], paths: dict[str, Json]) -> dict[str, Json]:
    return {path: value for path, value in paths.items() if path.split(".")[:2] not in [["methods", name] for name in methods]}


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
    varying: dict[str, set[str]] = {name: set() for name in recipe.methods}
    keys_at: dict[tuple[str, int, int | None], dict[tuple[str, ...], str]] = {}
    points: list[Recipe] = []
    for point in grid_points(recipe):
        at_point = recipe_at(recipe, point)
        points.append(at_point)
        builder = Builder(at_point, resolver, sizes)
        for name, seed, fold in itertools.product(recipe.methods, recipe.seeds, builder.folds):
            if not recipe.methods[name].reported:
                continue
            scores = builder.scores(name, seed=seed, fold=fold)
            scored.setdefault((name, scores.key), (point, fold, scores))
            keys_at.setdefault((name, seed, fold), {})[tuple(map(repr, point.values()))] = scores.key
        remarked |= builder.remarks
    for (name, _, _), keys in keys_at.items():
        varying[name] |= paths_that_matter(tuple(recipe.sweep), keys)
    for path, values in recipe.sweep.items():
        if len(values) > 1 and not any(path in paths for paths in varying.values()):
            raise RecipeError(
                where=f"sweep.{path}", found=f"{len(values)} values that lead to the same stages",
                expected="values that each change a result", remedy="Drop the line; settings that do not change results are in runtime.",
            )  # fmt: skip
    trials = tuple(
        Trial.of(recipe, name, ((path, value) for path, value in point.items() if path in varying[name]), scores, fold=fold)
        for (name, _), (point, fold, scores) in scored.items()
    )
    remarked |= dict.fromkeys(left_over_at_all(points))
    order = {name: place for place, name in enumerate(recipe.methods)}
    ordered = tuple(sorted(trials, key=lambda trial: order[trial.method]))
    return Plan(recipe=recipe, trials=ordered, rows=sizes.rows, tokens=sizes.tokens, notes=(*own_notes, *resolver.notes, *remarked))
