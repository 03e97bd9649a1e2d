"""Python API for recipes: plan, run, sweep; train on a user's rows and write the encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sentdist.api.encoders import Place
from sentdist.errors import DataError, counted, typed
from sentdist.inference.opening import data_root, open_store, store_root
from sentdist.recipe.recipe import Recipe
from sentdist.recipe.unroll import Plan, check_takes_effect
from sentdist.run.backend import Outcome, outcomes
from sentdist.text import PrintLine

if TYPE_CHECKING:
    from sentdist.recipe.stage import Json
    from sentdist.recipe.stages import Scores
    from sentdist.report.evaluated import Verdict
    from sentdist.run.tune import Trained
    from sentdist.stages.planned import OwnRequest
    from sentdist.store.store import Artifact, ArtifactStore


AnyRecipe = Recipe | str | Path


def plan(recipe: AnyRecipe, *, overrides: Sequence[str] = (), store: Place = None, data: Place = None) -> Plan:
    """Plan a recipe without starting anything.

    Args:
        recipe: a `Recipe`, or its path.
        overrides: fields to change, as with `--set`: `["training.batch_size=32"]`; only with a path.
        store, data: where artifacts and data are; None: SENTDIST_STORE (else `.sentdist/store`) and SENTDIST_DATA.

    Returns:
        Its `trials`, each ending in scores, and all `stages`, each once, inputs first.

    Raises:
        RecipeError, DataError, EncoderError: mistakes that can be found before any work; a recipe with `search`, which chooses its trials
            as it runs.
    """
    from sentdist.stages.planned import planned_trials

    return planned_trials(_recipe(recipe, overrides), store=store_root(store), data=data_root(data))[0]


def run(
    recipe: AnyRecipe, *, overrides: Sequence[str] = (), store: Place = None, data: Place = None, print_line: PrintLine = print
) -> list[Outcome]:
    """Build a recipe without its grid in this process, as `sentdist sweep --no-grid --local`; stages in the store are not built again.

    Args:
        recipe, overrides, store, data: as in `plan`.
        print_line: called with each line of progress.

    Returns:
        An outcome for each trial. With `search`: those of the settings chosen on dev, trained with all seeds, and of untrained rows. With
        `confirm_seeds`, those of the fresh seeds come last.

    Raises:
        RecipeError, DataError, EncoderError: mistakes, before anything is built.
        StoreError: no space on the disk. TrainingDiverged: a non-finite loss or gradient. The error of the first failed trial is raised
            after the others are built.

    Example:
        outcomes = sentdist.run("rayjobs/recipes/demo.yaml", overrides=["seeds=[0]"])
        print({outcome.method: outcome.scores for outcome in outcomes})
    """
    return _build(_recipe(recipe, overrides, has_grid=False), store, data, print_line)


def sweep(
    recipe: AnyRecipe, *, overrides: Sequence[str] = (), store: Place = None, data: Place = None, print_line: PrintLine = print
) -> list[Outcome]:
    """Build all trials of a recipe, including its grid, in this process, as `sentdist sweep --local`; otherwise like `run`."""
    return _build(_recipe(recipe, overrides), store, data, print_line)


def _build(recipe: Recipe, store: Place, data: Place, print_line: PrintLine) -> list[Outcome]:
    from sentdist.stages.planned import requested

    found = data_root(data)
    place = store_root(store)
    asked, context = requested(recipe, store=place, data=found)  # before torch is loaded, to report mistakes at once

    from sentdist.run.backend import LocalBackend, build_recipe

    for line in asked.notes if isinstance(asked, Plan) else ():
        print_line(line)
    done = build_recipe(asked, context, found, LocalBackend(), print_line=print_line)
    ended: list[Outcome] = []
    for one in done:
        for failure in one.summary.failures:
            assert failure.error is not None, "it is among the failures"
            raise failure.error
        ended += outcomes(one.plan, context.store)
    return ended


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


KEY_LETTERS = 8
ROWS = ".sentdist/data"  # folder of rows given as Python values
TRAINED = ".sentdist/trained"


@dataclass(frozen=True, kw_only=True)
class TrainedEncoder:
    """An encoder trained on a user's rows."""

    folder: Path  # for `Encoder` and sentence-transformers
    verdict: Verdict  # against the untouched encoder on held-out rows: `outcome`, `difference`, `line`
    num_seeds: int  # trainings whose weights it averages

    def __repr__(self) -> str:  # short for notebooks
        return f"TrainedEncoder({str(self.folder)!r}: {self.verdict.line})"


def train(
    rows: Any,
    *,
    encoder: str | Path = "minilm-l6",
    columns: Mapping[str, str | Sequence[str]] | None = None,
    out: Place = None,
    store: Place = None,
    data: Place = None,
    print_line: PrintLine = print,
) -> TrainedEncoder:
    """Train an encoder once on your own rows, with default settings for their shape, and compare it with the untouched one.

    Args:
        rows: a file, a folder of its parts or `hub:OWNER/NAME@COMMIT`, as in `sentdist train`; or a list of dicts or tuples, a pandas
            DataFrame or a `datasets.Dataset`.
        encoder: a packaged name, a folder or a hub id, and how it is opened, as in `Encoder`: `OWNER/NAME?revision=COMMIT&max_length=256`
            (keys `revision`, `pooling`, `max_length`: tokens of a text, by default 128).
        columns: of the roles anchor, positive, negative (several), score, group and split; None: by usual names.
        out: folder for the encoder; None: below `.sentdist/trained`.
        store, data: as in `plan`.
        print_line: called with each line of progress.

    Returns:
        The encoder's folder and the verdict on held-out rows.

    Raises:
        RecipeError, DataError, EncoderError: mistakes, before anything is built.

    Example:
        trained = sentdist.train("faq.csv")
        encoder = sentdist.Encoder(trained.folder)
    """
    from sentdist.inference.opening import parse_encoder
    from sentdist.stages.planned import own_request

    named: dict[str, Json] = {role: found if isinstance(found, str) else [*found] for role, found in (columns or {}).items()}
    request = own_request(
        as_file(rows), command="train", fields={"columns": named} if named else {}, encoders=[parse_encoder(str(encoder))],
        data=data_root(data),
    )  # fmt: skip
    return trained_here(request, out=out, store=store_root(store), data=data_root(data), print_line=print_line)


def trained_here(request: OwnRequest, *, out: Place, store: str | None, data: Path | None, print_line: PrintLine) -> TrainedEncoder:
    """Run the training of a request in this process and write its encoder."""
    from sentdist.run.backend import LocalBackend
    from sentdist.run.tune import Tuning

    for line in (*request.pin.notes, *request.resolver.notes, can_show(request)):
        print_line(line)
    tuning = Tuning(request, LocalBackend(), store=store_root(store), data=data, print_line=print_line)
    tuning.run()
    trained = tuning.finished()
    assert trained is not None, "else it raises"
    return hand_over(trained, request, Path(TRAINED) / request.asked.recipe_name if out is None else Path(out), store=store, data=data)


def can_show(request: OwnRequest) -> str:
    """Return a sentence on the smallest difference that the test rows are likely to show."""
    return (
        f"The test has {counted(request.pin.num_test, 'item')}: a difference from the untouched encoder is likely to be shown from about "
        f"{request.smallest_difference:.1f} points on."
    )


def hand_over(trained: Trained, request: OwnRequest, out: Path, *, store: str | None, data: Path | None) -> TrainedEncoder:
    """Write the encoder with the mean weights of these trainings and a card with its scores.

    Its folder below `out` is named by the keys of the trainings; an existing one is kept.
    """
    from sentdist.api.encoders import card_of
    from sentdist.recipe.specs import EncoderSpec
    from sentdist.recipe.stages import Train
    from sentdist.report.evaluated import compared_measures, scored, verdict
    from sentdist.tasks.names import own_test_names

    opened, asked = open_store(store), request.asked
    artifacts = [
        found for trial in trained.trials if isinstance(trial.scores.encoder, Train) and (found := opened.get(trial.scores.encoder))
    ]
    target = _written(artifacts, out, opened, max_length=asked.max_length)
    untouched, own = trained.untouched(asked.untouched_of(trained.settings.method)).scores, trained.trials[0].scores
    if artifacts[1:]:
        assert isinstance(untouched.encoder, EncoderSpec), "it is not trained"
        own = _scores_of(target, untouched.encoder.pooling, trained, request, store=store, data=data)
    measures = compared_measures(own_test_names(request.pin.name, asked.shape))
    ours, theirs = (scored(one.record.results, opened.folder(one), measures) for one in map(opened.get, (own, untouched)) if one)
    average = own.encoder if isinstance(own.encoder, EncoderSpec) else None
    card = card_of(artifacts[0], opened, name=target.name, scored_as=average, num_seeds=len(artifacts))
    (target / "README.md").write_text(card, encoding="utf-8")
    return TrainedEncoder(folder=target, verdict=verdict(ours, theirs, measures), num_seeds=len(artifacts))


def _written(artifacts: Sequence[Artifact], out: Path, store: ArtifactStore, *, max_length: int) -> Path:
    """The folder of the encoder with the mean weights of these trainings, written if missing."""
    from sentdist.api.encoders import export_encoder
    from sentdist.inference.export import average_encoders
    from sentdist.recipe.specs import EncoderUse

    keys = sorted(one.key for one in artifacts)
    name = keys[0] if not keys[1:] else hashlib.sha256(" ".join(keys).encode()).hexdigest()
    target = out / f"encoder-{name[:KEY_LETTERS]}"
    out.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        with TemporaryDirectory() as scratch:
            folder = Path(store.folder(artifacts[0]))
            if keys[1:]:
                folder = Path(scratch) / "average"
                average_encoders([Path(store.folder(one)) for one in artifacts], folder)
            export_encoder(EncoderUse(checkpoint=str(folder), max_length=max_length), target, store)
    return target


def _scores_of(folder: Path, pooling: str, trained: Trained, request: OwnRequest, *, store: str | None, data: Path | None) -> Scores:
    """The stage of scores of the encoder in a folder on the test rows of these trainings, built in this process."""
    from sentdist.recipe.recipe import recipe_from_values
    from sentdist.stages.local import build_all
    from sentdist.stages.planned import planned_recipe

    values = trained.plan.recipe.model_dump(exclude_unset=True) | {"methods": {"encoder": {}}, "baseline": "encoder", "seeds": [0]}
    values["encoder"] = {"checkpoint": str(folder), "pooling": pooling}
    recipe = recipe_from_values(values, where=str(folder))
    plan, context = planned_recipe(recipe, store=store_root(store), data=data, resolver=request.resolver)
    build_all(plan.stages, context)
    return plan.trials[0].scores


def as_file(rows: Any) -> str:
    """Write rows to a Parquet file named by their digest and return its path; a path or hub name is returned unchanged.

    Raises:
        DataError: not rows with equal columns.
    """
    if isinstance(rows, str | Path):
        return str(rows)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        each = rows.to_dict("records") if hasattr(rows, "iloc") else list(rows)  # a DataFrame; a Dataset is a sequence of dicts
        is_named = isinstance(each[0], Mapping)
        table = pa.Table.from_pylist(each if is_named else [dict(zip(_names(each[0]), one, strict=True)) for one in each])
    except (TypeError, ValueError, IndexError, KeyError, pa.ArrowException) as error:
        raise DataError(
            where="rows", found=f"{typed(rows)}: {error}", expected="a file, a list of dicts or tuples, a DataFrame or a Dataset",
            remedy="Give rows that all have the same columns.",
        ) from None  # fmt: skip
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content = sink.getvalue().to_pybytes()
    file = Path(ROWS) / f"rows-{hashlib.sha256(content).hexdigest()[:KEY_LETTERS]}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return str(file)


def _names(row: Sequence[object]) -> Sequence[str]:
    """Column names of tuples: graded pairs if the third value is a number, else pairs or triplets."""
    if len(row) == 3 and isinstance(row[2], int | float):
        return ("sentence1", "sentence2", "score")
    return ("anchor", "positive", *(f"negative_{number}" if number > 1 else "negative" for number in range(1, len(row) - 1)))
