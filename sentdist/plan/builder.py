"""How the methods of a recipe become stages: what each trains, on what it goes on, and what scores it."""

from __future__ import annotations

from collections.abc import Iterable

from sentdist.errors import RecipeError
from sentdist.plan.compatibility import check_encoder, check_fit, check_frozen, check_start, relations_of, remarks, settled, unheeded
from sentdist.plan.corpora import AnyCorpus, CorpusSection
from sentdist.plan.corpora.kind import Planning
from sentdist.plan.corpora.relations import LinkTask, RelationalCorpus, link_task
from sentdist.plan.corpus_sizes import CorpusSizes
from sentdist.plan.dev_tasks import dev_parts
from sentdist.plan.memoized import memoized
from sentdist.plan.method_checks import check_lexical
from sentdist.plan.objectives import AnyObjective, names_with, phi_of, uses_targets
from sentdist.plan.recipe import Recipe
from sentdist.plan.recipe_tasks import RecipeTasks
from sentdist.plan.resolver import Pin, Resolver
from sentdist.plan.sections import EncoderSection, Method, TargetsSection
from sentdist.plan.selection import Selection
from sentdist.plan.specs import EncoderSpec, LexicalSpec, Training
from sentdist.plan.stages import Bank, Scores, Targets, Train
from sentdist.plan.training_checks import (
    check_batch,
    check_checkpoint,
    check_encoder_of_start,
    check_length,
    check_pooling,
    check_training,
    rate_remarks,
)
from sentdist.plan.view_checks import check_channels, check_links, check_space, check_view, chosen_by, settled_view


def _check_folds(section: CorpusSection, resolver: Resolver, *, has_folds: bool) -> None:
    """Cross-validation goes with retrieval corpora, and only with them."""
    if has_folds == (section.judged_source(resolver) is not None):
        return
    source = section.shown
    if has_folds:
        raise RecipeError(where="folds", found=f"corpus {source}", expected="a retrieval corpus", remedy="Drop folds.")
    raise RecipeError(where="folds", found=f"none for corpus {source}", expected="folds over its queries", remedy="Add folds: {num: 5}.")


def _check_limit(section: CorpusSection, *, where: str) -> None:
    """A seed that draws no rows would change the key alone. Checked here, so that the report of an old sweep with one can be made."""
    if getattr(section, "limit_seed", 0) and getattr(section, "limit", None) is None:
        raise RecipeError(where=f"{where}.limit_seed", found="no limit", expected="a limit, whose rows it draws", remedy="Leave it out.")


class Builder:
    """The stages of one recipe without a sweep; each distinct value is asked of the resolver once."""

    def __init__(self, recipe: Recipe, resolver: Resolver, sizes: CorpusSizes) -> None:
        self.recipe = recipe
        self.resolver = resolver
        self.sizes = sizes  # what is found out about corpora is added
        self.tasks = RecipeTasks(recipe, resolver)
        self._under_way: list[str] = []  # methods whose trainings are being planned, each for the one before it
        self.remarks: dict[str, None] = {}  # in the order in which methods were planned
        self.folds: tuple[int | None, ...] = (None,) if recipe.folds is None else tuple(range(recipe.folds.num))
        for where, section in {"corpus": recipe.corpus, **{f"corpora.{name}": one for name, one in recipe.corpora.items()}}.items():
            _check_folds(section, resolver, has_folds=recipe.folds is not None)
            _check_limit(section, where=where)

    @memoized
    def encoder(self, name: str) -> EncoderSpec:
        """The checkpoint that a method starts from."""
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
        """Tags and words of a corpus."""
        section = self.recipe.targets or TargetsSection()
        revision = self.resolver.tagger(section.tagger, where="targets.tagger")
        return Targets(corpus=corpus, tagger=section.tagger, tagger_revision=revision, num_words=section.num_words)

    @memoized
    def corpus(self, name: str | None, fold: int | None) -> AnyCorpus:
        """The training rows of a method: the recipe's corpus, or the one of that name under `corpora`."""
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
        """The training of a method; None for the untouched checkpoint. phi: in place of the objective's own; None: that."""
        if name in self._under_way:
            circle = " → ".join((*self._under_way, name))
            raise RecipeError(
                where=f"methods.{name}", found=circle, expected="no circle", remedy="Let one of them start from the checkpoint."
            )
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
            raise RecipeError(
                where=f"methods.{name}.bank_dtype", found="no bank", expected="a bank, which is kept in it", remedy="Leave it out."
            )
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

    def _selection(self, name: str, fold: int | None, objective: AnyObjective, corpus: AnyCorpus, *, width: int | None) -> Selection | None:
        """The recipe's selection, for the method `name`."""
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
