"""Plan the evaluation of an encoder without a recipe, and the overlap checks of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sentdist.corpora.kind import CorpusStage
from sentdist.corpora.own import OwnSection
from sentdist.errors import RecipeError
from sentdist.recipe.recipe import load_recipe, recipe_from_values
from sentdist.recipe.resolver import Resolver
from sentdist.recipe.specs import EncoderUse
from sentdist.recipe.stage import Json, topological
from sentdist.recipe.stages import CorpusSizes, Overlap, Scores, Train
from sentdist.recipe.unroll import Builder, Plan
from sentdist.tasks.kinds import DevTask
from sentdist.tasks.names import OWN, own_parts

RECIPES = (".yaml", ".yml")


def evaluation_of(use: EncoderUse, tasks: Sequence[str], resolver: Resolver, *, command: str = "evaluate") -> Scores:
    """Return the scores stage of an encoder, planned and checked as a recipe with one method.

    Args:
        use: Without a pooling it takes the one that the encoder declares, else the mean.
        tasks: Names of tasks or groups; `own=FILE` is the test split of that file.

    Raises:
        RecipeError, DataError, EncoderError: as `unroll`.
    """
    resolver.encoder(use.checkpoint, revision=use.revision, where="encoder")
    pooling = use.pooling or resolver.declared_pooling(use.checkpoint, revision=use.revision) or "mean"
    where = f"sentdist {command}"
    values: dict[str, Json] = {
        "name": "evaluate", "encoder": {"checkpoint": use.checkpoint, "revision": use.revision, "pooling": pooling},
        "corpus": _corpus_of(tasks, where=where),
        "evaluation": {
            "tasks": [OWN if is_own_rows(task) else task for task in tasks], "max_length": use.max_length, "precision": use.precision,
        },
        "methods": {"base": {}},
    }  # fmt: skip
    return Builder(recipe_from_values(values, where=where), resolver, CorpusSizes()).scores("base", seed=0, fold=None)


def is_own_rows(task: str) -> bool:
    """Return whether a task is own=FILE, even if incomplete."""
    return task.partition("=")[0] == OWN


def _corpus_of(tasks: Sequence[str], *, where: str) -> dict[str, Json]:
    """Return the corpus whose held-out rows are scored: a file, or the corpus of a recipe; else a placeholder that is not read."""
    given = list(dict.fromkeys(filter(is_own_rows, tasks)))
    if not given:
        return {"source": "none"}
    own = own_parts(given[0])
    if not own.source or len(given) > 1 or own.split not in (None, "test"):
        raise RecipeError(
            where=where, found=" and ".join(given), expected="one file of yours: own=FILE", remedy="Its test rows are scored."
        )
    if not own.source.endswith(RECIPES):
        return {"kind": "own", "file": own.source, "revision": own.commit or None}
    corpus = load_recipe(Path(own.source).expanduser()).corpus
    if not isinstance(corpus, OwnSection):
        found, expected = f"{given[0]}, a corpus of kind {corpus.kind}", "a recipe whose corpus is of kind own"
        raise RecipeError(where=where, found=found, expected=expected, remedy="Name a file: own=FILE.")
    return corpus.model_dump(mode="json", exclude_unset=True)


def overlaps_of(plan: Plan) -> tuple[Overlap, ...]:
    """Return an overlap stage for each corpus an encoder was trained on and each dev set that chose its weights, with the scored tasks.

    A training that starts from another one, or uses banks, has seen their corpora too.
    """
    found: dict[str, Overlap] = {}
    for trial in plan.trials:
        if not isinstance(trial.scores.encoder, Train):
            continue
        upstream = topological((trial.scores.encoder,))
        corpora = [stage for stage in upstream if isinstance(stage, CorpusStage)]
        chosen_by = dict.fromkeys(task for stage in upstream if isinstance(stage, Train) for task in stage.dev_tasks)
        sources: list[CorpusStage | DevTask] = [*corpora, *(task for task in chosen_by if task not in trial.scores.tasks)]
        for source in sources:
            overlap = Overlap(of=source, tasks=trial.scores.tasks)
            found.setdefault(overlap.key, overlap)
    return tuple(found.values())
