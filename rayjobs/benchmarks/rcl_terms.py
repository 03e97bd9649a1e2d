"""Eq. 4 to 6 of RCL, before and after training, of every finished RCL encoder of a recipe:
`python -m rayjobs.benchmarks.rcl_terms RECIPE --data DIR --store STORE`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentdist.errors import DataError, SentdistError
from sentdist.text import markdown_table

if TYPE_CHECKING:
    from sentdist.evaluation.geometry import RclTerms
    from sentdist.recipe.specs import EncoderSpec
    from sentdist.recipe.stages import Train
    from sentdist.stages.context import Context

HEADER = ("encoder", "", "Eq. 4", "q·ind", "q·Au", "ind·Au", "Eq. 5", "Eq. 6")


def main(
    recipe: Annotated[Path, typer.Argument(help="Whose RCL encoders are in the store.", show_default=False)],
    store: Annotated[str, typer.Option(help="Where they are.")] = ".sentdist/store",
    data: Annotated[Path | None, typer.Option(help="The data root of the recipe.", show_default=False)] = None,
    rows: Annotated[int, typer.Option(help="Rows of the corpus, drawn with seed 0.", min=2)] = 1000,
) -> None:
    """Print what the regulators pull together and push apart: Eq. 4 less log M, its alignments, Eq. 5 and the bound of Eq. 6."""
    try:
        typer.echo(table(recipe, store=store, data=data, rows=rows))
    except SentdistError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def table(recipe: Path, *, store: str, data: Path | None, rows: int) -> str:
    """The table as Markdown. Raises DataError where no RCL encoder of the recipe is finished."""
    from sentdist.recipe.recipe import load_recipe
    from sentdist.recipe.stages import Train
    from sentdist.stages.planning.planned import planned_recipe

    plan, context = planned_recipe(load_recipe(recipe), store=store, data=data)
    trained = [stage for stage in plan.stages if isinstance(stage, Train) and stage.objective.name == "rcl" and context.store.has(stage)]
    if not trained:
        raise DataError(
            where=str(recipe), found="no finished RCL encoder", expected="at least one", remedy="Run the recipe into this store."
        )
    lines = [line for stage in trained for line in _lines(stage, context, rows)]
    return markdown_table(list(HEADER), lines)


def _lines(stage: Train, context: Context, rows: int) -> list[list[str]]:
    found = {"before": stage.start or stage.encoder, "after": stage}
    return [[stage.label, when, *_numbers(terms_of(stage, encoder, context, rows))] for when, encoder in found.items()]


def _numbers(terms: RclTerms) -> list[str]:
    parts = (terms.pairs, terms.queries, terms.indices)
    spread = sum(part.spread for part in parts)
    return [f"{value:.4f}" for value in (terms.asymptotic_loss, *(part.alignment for part in parts), spread, terms.bound)]


def terms_of(stage: Train, encoder: Train | EncoderSpec, context: Context, rows: int) -> RclTerms:
    """The terms of some rows of a training's corpus under an encoder, with the training's banks."""
    import numpy as np

    from sentdist.data.corpus import OpenedCorpus
    from sentdist.evaluation.geometry import rcl_terms
    from sentdist.learning.bank import FileBank
    from sentdist.learning.encoder.encode import encode
    from sentdist.stages.context import folder_of
    from sentdist.stages.scores.embed_sentences import frozen_encoder

    corpus = OpenedCorpus.open(folder_of(stage.corpus, context))
    order = np.random.default_rng(0).permutation(corpus.num_rows)[:rows]
    bank = FileBank([folder_of(one, context) for one in stage.banks])
    loaded = frozen_encoder(encoder, context, precision="fp32")
    sides = [np.asarray(corpus.ids[column])[order] for column in (0, 1)]
    ours = [encode(loaded, corpus.sentences(ids), max_length=stage.training.max_length) for ids in sides]
    augmented = [bank.rows(ids).float().numpy() for ids in sides]
    return rcl_terms(*ours, *augmented)


if __name__ == "__main__":
    typer.run(main)
