"""What `evaluate` and `compare` do by mteb: it scores encoders on its own tasks, and what it has kept of their answers is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from sentdist.cli.printing import empty_table, open_console, two_decimals
from sentdist.cli.score_output import print_compared, print_json
from sentdist.errors import DataError

if TYPE_CHECKING:
    from sentdist.inference.mteb_predictions import Predictions
    from sentdist.inference.ready_encoder import LoadedEncoder
    from sentdist.plan.specs import EncoderUse
    from sentdist.report.evaluated import Compared


@dataclass(frozen=True, kw_only=True)
class MtebSide:
    """One of two that are compared. kept: what mteb has kept of it; None for an encoder, which mteb is to run first. use: that encoder.
    options: what was given for this side alone."""

    name: str
    kept: Predictions | None
    use: Callable[[], EncoderUse]
    options: Mapping[str, object]

    @classmethod
    def of(cls, name: str, use: Callable[[], EncoderUse], **options: object) -> MtebSide:
        from sentdist.inference.mteb_predictions import Predictions

        return cls(name=name, kept=Predictions.of(name), use=use, options=options)


def score_by_mteb(use: EncoderUse, tasks: list[str], out: Path | None, *, output: str, without: Mapping[str, object]) -> None:
    """Have mteb score the encoder on its own tasks. without: options that have no effect then, with what was given."""
    refused = next((name for name, value in without.items() if value), None)
    if not tasks or out is None or refused:
        found = "--out without --mteb" if not tasks else f"{refused} beside --mteb" if refused else "--mteb without --out"
        remedy = "Name tasks of one kind." if refused else "Say where to write: --out DIR."
        if not tasks:
            remedy = "Leave --out out: scores of --tasks are kept in the store."
        raise DataError(where="sentdist evaluate", found=found, expected="--mteb TASK --out DIR, or --tasks", remedy=remedy)
    _check_folder(out)

    from sentdist.inference.mteb_tasks import mteb_tasks, score_on_mteb

    found_tasks = mteb_tasks(tasks)  # mistakes in names are reported before anything is loaded
    scores = score_on_mteb(_loaded(use), found_tasks, out)
    if output == "json":
        print_json({"encoder": use.checkpoint, "tasks": list(map(asdict, scores)), "folder": str(out)})
        return
    table = empty_table(use.checkpoint, "task of mteb", "main score × 100")
    for score in scores:
        table.add_row(score.task, two_decimals(score.score))
    open_console().print(table)
    typer.echo(f"In mteb's format: {out}/results; of each item, for `sentdist compare`: {out}/predictions")


def compare_by_mteb(
    sides: tuple[MtebSide, MtebSide], tasks: list[str] | None, out: Path | None, opinion: Callable[[Compared], Iterable[str]],
    *, output: str, of_encoders: Mapping[str, object], without: Mapping[str, object],
) -> None:  # fmt: skip
    """Compare what mteb has kept of two; an encoder it runs first, on the tasks of the other side or on those that are named.

    of_encoders: options that have an effect where a side is an encoder; without: options that never have one.
    """
    encoders, folders = ([side for side in sides if (side.kept is None) is is_encoder] for is_encoder in (True, False))
    unused = {**without, **{name: value for side in folders for name, value in side.options.items()}}
    _check_options(encoders, {**unused, **({} if encoders else {**of_encoders, "--out": out})}, tasks, out)

    from sentdist.inference.mteb_predictions import predicted_scores
    from sentdist.inference.mteb_tasks import mteb_tasks
    from sentdist.report.evaluated import compare_evaluated

    named = tasks or [name for side in folders if side.kept is not None for name in side.kept.files]
    asked = mteb_tasks(named) if encoders else []  # mistakes in names are reported before anything is loaded
    first, second = (side.kept or _run(side.use(), asked, out) for side in sides)
    if first.folder.resolve() == second.folder.resolve():
        raise DataError(where="sentdist compare", found=f"{sides[0].name} twice", expected="two encoders", remedy="Name another one.")
    names = (sides[0].name, sides[1].name)
    labels = names if names[0] != names[1] else (f"{names[0]} (first)", f"{names[1]} (second)")
    with TemporaryDirectory() as place:
        scores = predicted_scores((first, second), tasks, Path(place))
        for note in scores.notes:
            typer.echo(note, err=output == "json")
        found = compare_evaluated(labels, scores.both, scores.measures)
    print_compared(f"{labels[0]} − {labels[1]}, by mteb's predictions", labels, found, opinion(found), output=output)


def _check_options(encoders: list[MtebSide], unused: Mapping[str, object], tasks: list[str] | None, out: Path | None) -> None:
    if (refused := next((name for name, value in unused.items() if value), None)) is not None:
        raise DataError(
            where="sentdist compare", found=f"{refused} beside predictions of mteb", expected="options of what mteb is to run",
            remedy="Leave it out: what mteb has kept was made with the settings of then.",
        )  # fmt: skip
    if not encoders:
        return
    if out is None or (len(encoders) == 2 and not tasks):
        found = (
            "--out without --mteb"
            if out is not None
            else "--mteb without --out"
            if tasks
            else f"{encoders[0].name} beside predictions of mteb"
        )
        remedy = "Name tasks of mteb." if out is not None else "Say where mteb writes what the encoder answers to its tasks: --out DIR."
        raise DataError(
            where="sentdist compare", found=found, expected="two folders of predictions, or --mteb TASK --out DIR", remedy=remedy
        )
    _check_folder(out)


def _run(use: EncoderUse, tasks: list[object], out: Path | None) -> Predictions:
    from sentdist.inference.mteb_predictions import Predictions
    from sentdist.inference.mteb_tasks import MtebEncoder, score_on_mteb

    assert out is not None, "it was looked for"
    loaded = _loaded(use)
    score_on_mteb(loaded, tasks, out)
    found = Predictions.of(str(MtebEncoder(loaded).predictions_below(out)))
    assert found is not None, "mteb has just written them"
    return found


def _loaded(use: EncoderUse) -> LoadedEncoder:
    """The encoder; stderr names the prompts that it goes without."""
    from sentdist.inference.ready_encoder import LoadedEncoder

    loaded = LoadedEncoder.load(use)
    if names := [name for name, text in loaded.prompts.texts.items() if text]:
        typer.echo(f"encoder {use.checkpoint}: it reads mteb's texts without its prompts ({', '.join(names)}).", err=True)
    return loaded


def _check_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise DataError(
            where=f"--out {out}", found="a file", expected="a folder, which is made if it is not there", remedy="Name a folder."
        )
