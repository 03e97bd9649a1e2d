"""Eq. 4 to 6 of RCL, before and after training, of every finished RCL encoder of a recipe:
`python -m rayjobs.benchmarks.rcl_terms RECIPE --data DIR --store STORE`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from numpy.typing import ArrayLike, NDArray

from sentdist.errors import DataError, SentdistError
from sentdist.evaluation.sts import checked_embeddings, normalized
from sentdist.text import markdown_table

if TYPE_CHECKING:
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
    from sentdist.learning.bank import FileBank
    from sentdist.learning.encoder.encode import encode
    from sentdist.stages.context import folder_of
    from sentdist.stages.embed import frozen_encoder

    corpus = OpenedCorpus.open(folder_of(stage.corpus, context))
    order = np.random.default_rng(0).permutation(corpus.num_rows)[:rows]
    bank = FileBank([folder_of(one, context) for one in stage.banks])
    loaded = frozen_encoder(encoder, context, precision="fp32")
    sides = [np.asarray(corpus.ids[column])[order] for column in (0, 1)]
    ours = [encode(loaded, corpus.sentences(ids), max_length=stage.training.max_length) for ids in sides]
    augmented = [bank.rows(ids).float().numpy() for ids in sides]
    return rcl_terms(*ours, *augmented)


@dataclass(frozen=True, kw_only=True)
class PairingTerms:
    """The terms of one pairing of m sentences with m others: q with ind, q with Au_q, ind with Au_ind.

    Args:
        alignment: mean cosine of matching sentences (first terms of Eq. 4, without their sign).
        spread: mean over i of the log of the mean over j of exp cosine (Eq. 5).
        mean_cosine: over all i and j (Eq. 6), at most `spread` by Jensen's inequality.
    """

    alignment: float
    spread: float
    mean_cosine: float


@dataclass(frozen=True, kw_only=True)
class RclTerms:
    """Terms of queries with indices (`pairs`), and of each with its N augmentations by entropy encoders, in sum."""

    pairs: PairingTerms
    queries: PairingTerms
    indices: PairingTerms

    @property
    def asymptotic_loss(self) -> float:
        """Eq. 4: Eq. 3 at temperature 1 less (1 + 2N) log M, as M grows; nats."""
        return sum(term.spread - term.alignment for term in (self.pairs, self.queries, self.indices))

    @property
    def bound(self) -> float:
        """Eq. 6: the mean cosines that Eq. 5, the last three terms of Eq. 4, lies at or above."""
        return sum(term.mean_cosine for term in (self.pairs, self.queries, self.indices))


def rcl_terms(queries_MD: ArrayLike, indices_MD: ArrayLike, augmented_queries_NMD: ArrayLike, augmented_indices_NMD: ArrayLike) -> RclTerms:
    """Return the terms of m rows. Eq. 5 prints q in its last sum, where Eq. 4 and 6 have ind; here it is ind."""
    queries, indices = (_unit(one, "RCL's terms") for one in (queries_MD, indices_MD))
    banks = [[_unit(one, "a bank") for one in np.asarray(bank)] for bank in (augmented_queries_NMD, augmented_indices_NMD)]
    return RclTerms(
        pairs=_term(queries, indices),
        queries=_sum([_term(queries, one) for one in banks[0]]),
        indices=_sum([_term(indices, one) for one in banks[1]]),
    )


def _term(one_MD: NDArray[np.float64], other_MD: NDArray[np.float64]) -> PairingTerms:
    cosines = one_MD @ other_MD.T
    return PairingTerms(
        alignment=float(np.trace(cosines) / len(cosines)),
        spread=float(np.mean(np.log(np.mean(np.exp(cosines), axis=1)))),
        mean_cosine=float(cosines.mean()),
    )


def _sum(terms: list[PairingTerms]) -> PairingTerms:
    return PairingTerms(
        alignment=sum(term.alignment for term in terms),
        spread=sum(term.spread for term in terms),
        mean_cosine=sum(term.mean_cosine for term in terms),
    )


def _unit(embeddings_MD: ArrayLike, where: str) -> NDArray[np.float64]:
    return np.asarray(normalized(checked_embeddings(embeddings_MD, where=where)), dtype=np.float64)


if __name__ == "__main__":
    typer.run(main)
