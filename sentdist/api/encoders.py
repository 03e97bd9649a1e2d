"""What a Python program asks of sentdist: a function for each command that answers in this process, with the same names and defaults.

`import sentdist` offers what `sentdist.__all__` names of it; nothing heavy is loaded before one of them is called. Wherever an encoder is
asked for, an `Encoder`, a folder, a packaged name (`minilm-l6`), a hub id or the key of a train artifact will do. `store=None` takes the
environment variable SENTDIST_STORE, else `.sentdist/store`; `data=None` takes SENTDIST_DATA, else only data that the package makes itself.
Mistakes are a `SentdistError`: where, what was found, what was expected, what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, overload

from sentdist.errors import DataError as DataError
from sentdist.errors import EncoderError as EncoderError
from sentdist.errors import RecipeError as RecipeError
from sentdist.errors import ResourceError as ResourceError
from sentdist.errors import SentdistError as SentdistError
from sentdist.errors import StoreError as StoreError
from sentdist.errors import TrainingDiverged as TrainingDiverged
from sentdist.execution.outcomes import Outcome as Outcome
from sentdist.execution.outcomes import numbers, outcomes
from sentdist.inference.given import (
    given_count,
    given_data,
    given_embeddings,
    given_encoder,
    given_loaded,
    given_name,
    given_names,
    given_pairs,
    given_sentences,
    given_store,
)
from sentdist.inference.opening import encoder_use, open_store, store_root
from sentdist.plan.grid import check_takes_effect
from sentdist.plan.recipe import Recipe as Recipe
from sentdist.plan.unroll import Plan as Plan
from sentdist.print_line import PrintLine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from sentdist.inference.embedding_loss import EmbeddingLoss
    from sentdist.inference.planned_scores import PlannedScores
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.plan.specs import EncoderUse
    from sentdist.plan.stage import Json
    from sentdist.report.evaluated import Compared
    from sentdist.report.sweep_report import Report


class Encoder:
    """A sentence encoder in memory, ready for use; `Encoder.load` makes one."""

    _store: str | None = None  # that it was looked for in

    def __init__(self, loaded: LoadedEncoder) -> None:
        self.loaded = given_loaded("Encoder", loaded)

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        revision: str | None = None,
        pooling: str | None = None,
        max_length: int | None = None,
        precision: str = "fp32",
        store: Place = None,
    ) -> Encoder:
        """Load an encoder, ours or not, in float32, on a GPU where there is one.

        name: a folder, a packaged name (`minilm-l6`), a hub id, or the key of a train artifact in the store.
        revision: commit of a hub id. pooling: as `encoder.pooling` of a recipe names it ("mean", "cls", …); None: what the encoder
            declares.
        max_length: tokens of a sentence, special ones included; None: the encoder's own limit.
        precision: fp32; tf32 for products in TensorFloat-32, on an NVIDIA GPU; bf16 for products in bfloat16.

        Raises:
            EncoderError: no such encoder, no tokenizer, a pooling that it has no weights for, a length that it does not take.
            DataError: a name that is none, no such precision. ResourceError: tf32 without such a GPU.
            StoreError: a key of no or of several artifacts.
        """
        checked = given_encoder("Encoder.load", name)
        length = None if max_length is None else given_count("Encoder.load: max_length", max_length)

        from sentdist.inference.ready_encoder import LoadedEncoder

        use = encoder_use(
            checked, given_store(store), revision=revision, pooling=pooling, max_length=length, precision=precision, normalize=False
        )
        made = cls(LoadedEncoder.load(use))
        made._store = given_store(store)
        return made

    @property
    def width(self) -> int:
        """D, the numbers of an embedding."""
        return self.loaded.width

    def encode(self, sentences: str | Iterable[str], *, normalize: bool = False) -> np.ndarray:
        """(S, D) float32 embeddings of S sentences in their order, or (D,) of one `str`.

        normalize: of length 1. Else their length is what pooling gives, also where the checkpoint asks sentence-transformers to normalize.

        Raises:
            DataError: no sentence, or one without a visible character. EncoderError: embeddings that are not finite.
        """
        loaded = self.loaded if not normalize else replace(self.loaded, use=replace(self.loaded.use, normalize=True))
        embeddings_SD = loaded.embed(given_sentences("encode: sentences", sentences))
        embedding: np.ndarray = embeddings_SD[0] if isinstance(sentences, str) else embeddings_SD
        return embedding

    def export(self, to: str | Path) -> None:
        """Write a new folder that `SentenceTransformer(to)` loads, with a model card and, where there are any, its relations.

        A `max_length` that it was loaded with is written down. As `sentdist export`, which also writes ONNX graphs.

        Raises:
            DataError: the folder is there already.
        """
        from sentdist.encoder_export import export_encoder

        export_encoder(self.loaded.use, Path(to).expanduser(), open_store(self._store))

    def __repr__(self) -> str:
        encoder = self.loaded.encoder
        return f"Encoder({self.loaded.use.checkpoint!r}, width={self.width}, pooling={encoder.pooling!r})"


AnyEncoder = Encoder | str | Path
AnyRecipe = Recipe | str | Path
Place = str | Path | None
Weights = Mapping[str, float] | None


@overload
def similarity(  # type: ignore[overload-overlap]  # a str is an Iterable[str], too; here it is one sentence
    encoder: AnyEncoder, first: str, second: str, *, relations: Weights = None, directions: str = "max_both"
) -> float: ...
@overload
def similarity(
    encoder: AnyEncoder, first: Iterable[str], second: Iterable[str], *, relations: Weights = None, directions: str = "max_both"
) -> np.ndarray: ...
def similarity(
    encoder: AnyEncoder, first: str | Iterable[str], second: str | Iterable[str], *, relations: Weights = None, directions: str = "max_both"
) -> float | np.ndarray:
    """How alike sentences are, in [−1, 1]: (S,) float64 of S pairs, row by row, or a float of two `str`.

    relations: None gives cosines; relation to weight scores by what a relational encoder has learned, Σ_k w_k cos(h_1 + r_k, h_2)
    (RSE, arXiv 2212.08802). directions: of relations, `max_both`, the greater of both directions, or `one`, the first sentence as head.

    Raises:
        DataError: two lists of different lengths, no sentence, a relation that the encoder lacks.
        EncoderError: relations of an encoder without any.
    """
    from sentdist.inference.similarity import pair_scorer

    heads, tails = given_pairs("similarity", first, second)
    scores_S = pair_scorer(_loaded(encoder), relations or {}, directions=directions).scores(heads, tails)
    return float(scores_S[0]) if isinstance(first, str) else scores_S


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A sentence that a search found. row: its place in the corpus, from 0. score: cosine, or the weighted sum of relations."""

    row: int
    score: float
    text: str


@overload
def search(  # type: ignore[overload-overlap]
    encoder: AnyEncoder,
    queries: str,
    corpus: Iterable[str],
    *,
    top: int = 10,
    embeddings: ArrayLike | None = None,
    relations: Weights = None,
) -> list[Hit]: ...
@overload
def search(
    encoder: AnyEncoder,
    queries: Iterable[str],
    corpus: Iterable[str],
    *,
    top: int = 10,
    embeddings: ArrayLike | None = None,
    relations: Weights = None,
) -> list[list[Hit]]: ...
def search(
    encoder: AnyEncoder,
    queries: str | Iterable[str],
    corpus: Iterable[str],
    *,
    top: int = 10,
    embeddings: ArrayLike | None = None,
    relations: Weights = None,
) -> list[Hit] | list[list[Hit]]:
    """The `top` sentences of a corpus nearest to each query, exactly, best first; all, where it has fewer. Of one `str`, its hits alone.

    embeddings: (S, D), what `encode` gave for the corpus; None encodes it. relations: as in `similarity`, the query as head.
    Memory is that of the corpus itself; a corpus in a file of any size is searched by `sentdist search`.

    Raises:
        DataError: no query, an empty corpus, a `top` below 1, embeddings of another number or width.
        EncoderError: relations of an encoder without any.
    """
    from sentdist.evaluation.nearest import ROWS_PER_TILE
    from sentdist.evaluation.nearest import search as exact_search
    from sentdist.inference.nearest import embed_queries

    asked, documents = given_sentences("search: queries", queries), given_sentences("search: corpus", corpus, one_will_do=False)
    given = None if embeddings is None else given_embeddings("search: embeddings", embeddings, of=len(documents))
    depth = given_count("search: top", top)
    loaded = _loaded(encoder)
    vectors = embed_queries(loaded, asked, relations or {})
    tiles = (loaded.embed(documents[first : first + ROWS_PER_TILE]) for first in range(0, len(documents), ROWS_PER_TILE))
    ranking = exact_search(vectors.vectors, tiles if given is None else given, depth=depth)
    scores_QK = (ranking.cosines * vectors.scale[:, None]).round(6)
    hits = [
        [Hit(row=row, score=score, text=documents[row]) for row, score in zip(rows, scores, strict=True)]
        for rows, scores in zip(ranking.documents.tolist(), scores_QK.tolist(), strict=True)
    ]
    return hits[0] if isinstance(queries, str) else hits


def plan(recipe: AnyRecipe, *, overrides: Sequence[str] = (), store: Place = None, data: Place = None) -> Plan:
    """What a recipe comes to: its `trials`, each ending in scores, and all `stages`, each once, inputs before users. Nothing is started.

    recipe: a `Recipe`, or the path of one. overrides: fields to change, as `--set`: `["training.batch_size=32"]`.

    Raises:
        RecipeError, DataError, EncoderError: what can be known to be wrong before any work starts; a recipe with `search`, which suggests
            its trials as it goes.
    """
    from sentdist.stages.planning.planned import planned_trials

    return planned_trials(_recipe(recipe, overrides), store=store_root(given_store(store)), data=given_data(data))[0]


def run(
    recipe: AnyRecipe, *, overrides: Sequence[str] = (), store: Place = None, data: Place = None, print_line: PrintLine = print
) -> list[Outcome]:
    """Build what a recipe needs without its grid, in this process; as `sentdist run --local`. What the store has is not built again.

    recipe, overrides: as in `plan`. print_line: takes each line of progress.
    Of a recipe with `search`, the outcomes are those of what dev chose, trained with all seeds, and of the rows that are not trained; with
    `confirm_seeds`, those of the fresh seeds come last.

    Raises:
        RecipeError, DataError, EncoderError: mistakes, before anything is built.
        StoreError: no room on the disk. TrainingDiverged: a loss or gradient that is not finite. The error of the first trial that fails is
            raised once the others are built.
    """
    return _build(_recipe(recipe, overrides, has_grid=False), store, data, print_line)


def sweep(
    recipe: AnyRecipe, *, overrides: Sequence[str] = (), store: Place = None, data: Place = None, print_line: PrintLine = print
) -> list[Outcome]:
    """Build all trials of a recipe, its grid included, in this process; as `sentdist sweep --local`. Arguments and errors as in `run`."""
    return _build(_recipe(recipe, overrides), store, data, print_line)


def evaluate(
    encoder: AnyEncoder, tasks: str | Sequence[str] = "sts", *, store: Place = None, data: Place = None
) -> dict[str, float | None]:
    """Score an encoder on tasks: the main score × 100 of each by its name, and each measure by `task.measure`; None where it is undefined.

    tasks: names, groups (`sts`, `transfer`, `retrieval`, …) or `KIND=SOURCE@SPLIT` for data of your own, such as `sts=pairs.tsv`: below
    the data root or, where there is none, in this folder. `own=FILE` is the rows that `sentdist tune FILE` holds out for test.
    Scores and embeddings are kept in the store: what is asked again is not computed again.

    Raises:
        RecipeError: no such task. DataError: data that is missing or cannot be read. EncoderError: as `Encoder.load`.
    """
    names = given_names("evaluate: tasks", tasks)
    return numbers(_planned("evaluate", _use(encoder, store), names, store, data).made().record.results)


def compare(
    encoder: AnyEncoder, other: AnyEncoder, tasks: str | Sequence[str] = "sts", *, store: Place = None, data: Place = None
) -> Compared:
    """Whether two encoders differ, by the test that reports use: the first minus the second, on other items of these tasks.

    tasks, store, data: as in `evaluate`. The result has `lines`, a task each and then their average, with both scores × 100 and their
    `difference` (`low` and `high` of its 95 % interval, `p`, and `table_p`, corrected for all lines); a `sentence` on the last line;
    and `notes`, on what was not compared.

    Raises:
        DataError: one encoder twice, no task that both have a score of. Else as `evaluate`.
    """
    names = given_names("compare: tasks", tasks)
    uses = [_use(one, store) for one in (encoder, other)]
    first, second = (_planned("compare", use, names, store, data) for use in uses)
    ours, theirs = first.checkpoint, second.checkpoint
    if first.stage.key == second.stage.key:
        raise DataError(where="compare", found=f"{ours} twice", expected="two encoders", remedy="Give another one.")

    from sentdist.report.evaluated import compare_evaluated, compared_measures, scored

    labels = (ours, theirs) if ours != theirs else (f"{ours} (first)", f"{theirs} (second)")
    measures = compared_measures(first.names)
    here, there = (scored(one.record.results, first.context.store.folder(one), measures) for one in (first.made(), second.made()))
    return compare_evaluated(labels, (here, there), measures)


def report(sweep: str | Recipe | None = None, *, paper: str | None = None, store: Place = None) -> Report:
    """The tables and figures of a sweep, or with `paper` all tables of a paper with ours beneath: a function of the store's records.

    sweep: its recipe, or that recipe's name: what was last run under it. The report has `markdown`, `html` and `files`; `write(folder)`
        writes them all.

    Raises:
        StoreError: no such sweep, or none of its trials is finished. DataError: no such paper.
    """
    name = given_name("report", sweep, paper)
    if paper is not None:
        from sentdist.report.paper_page import report_paper

        return report_paper(open_store(given_store(store)), name)
    from sentdist.report.sweep_report import report_sweep

    return report_sweep(open_store(given_store(store)), name)


def objective(name: str, *, width: int | None = None, relations: Sequence[str] = (), **values: Json) -> EmbeddingLoss:
    """A loss by its name in a recipe, for embeddings of your own: `objective("info_nce", temperature=0.05)(anchors, positives)`.

    It is a torch module, called with (B, D) tensors, column by column: anchors, positives and perhaps hard negatives; and with `labels`,
    `relations` or `augmented` embeddings where the objective reads them (see `EmbeddingLoss.forward`). Under torch.distributed candidates
    come from all ranks. `sentdist objectives` lists the names.
    values: as in a recipe. width: D, for what learns something beside the encoder (a head, vectors of relations); its `parameters()` belong
    into the optimizer. relations: their names, for objectives that have vectors of them.

    Raises:
        RecipeError: no such objective, values that it has not, or one that needs more than embeddings (masked words, tags).
    """
    from sentdist.inference.embedding_loss import EmbeddingLoss
    from sentdist.plan.recipe import objective_from_values

    return EmbeddingLoss(objective_from_values(name, values), width=width, relations=relations)


def _build(recipe: Recipe, store: Place, data: Place, print_line: PrintLine) -> list[Outcome]:
    from sentdist.stages.planning.planned import requested

    found = given_data(data)
    place = store_root(given_store(store))
    asked, context = requested(recipe, store=place, data=found)  # before torch is loaded: a mistake is told at once

    from sentdist.execution.carry_out import carry_out, search_here
    from sentdist.execution.local_progress import build_locally

    for line in asked.notes if isinstance(asked, Plan) else ():
        print_line(line)
    build = partial(build_locally, print_line=print_line)
    done = carry_out(asked, context, found, search=search_here, build=build, print_line=print_line)
    ended: list[Outcome] = []
    for one in done:
        for failure in one.summary.failures:
            assert failure.error is not None, "it is among the failures"
            raise failure.error
        ended += outcomes(one.plan, context.store)
    return ended


def _use(encoder: AnyEncoder, store: Place) -> EncoderUse:
    return encoder.loaded.use if isinstance(encoder, Encoder) else encoder_use(given_encoder("encoder", encoder), given_store(store))


def _planned(command: str, use: EncoderUse, tasks: Sequence[str], store: Place, data: Place) -> PlannedScores:
    from sentdist.inference.planned_scores import PlannedScores

    return PlannedScores.of(use, tasks, store=open_store(given_store(store)), data=given_data(data), command=command)


def _recipe(recipe: AnyRecipe, overrides: Sequence[str], *, has_grid: bool = True) -> Recipe:
    found = recipe if isinstance(recipe, Recipe) else Recipe.load(recipe, overrides)
    found = found if has_grid else found.model_copy(update={"sweep": {}})
    if not isinstance(recipe, Recipe):
        check_takes_effect(found, overrides)
        return found
    if overrides:
        raise DataError(
            where="overrides", found="overrides beside a Recipe", expected="a path", remedy="Give them to Recipe.load, which checks both."
        )
    return found


def _loaded(encoder: AnyEncoder) -> LoadedEncoder:
    return encoder.loaded if isinstance(encoder, Encoder) else Encoder.load(encoder).loaded
