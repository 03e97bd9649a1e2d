"""All commands in the order in which `sentdist --help` lists them, with how their errors are printed."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sentdist.cli import encoders, nearest, recipes, reporting, scoring, servers, store, train
from sentdist.cli.printing import open_console
from sentdist.errors import NO_RIGHT, SentdistError, StoreError, explain_disk_errors, first_line, words_for
from sentdist.files import cache_folder
from sentdist.machine import collect_rarely, with_signal_code
from sentdist.text import without_secrets


def kept_traceback(error: BaseException) -> Path:
    """Write the traceback, the command and the versions to a file of the user's own and return its path.

    In sentdist's cache folder; in the system's folder of temporary files where that cannot be written.
    """
    now = datetime.now(UTC)
    text = f"{now.isoformat(timespec='seconds')}\n{' '.join(sys.argv)}\nPython {sys.version.split()[0]}\n\n"
    text = without_secrets(text + "".join(traceback.format_exception(error)))
    cache = cache_folder("tracebacks")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return _written(cache, now, text)
    except OSError:
        return _written(Path(tempfile.gettempdir()), now, text)


def print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """In place of Python's own `sys.excepthook`, which shows addresses as they are."""
    sys.stderr.write(without_secrets("".join(traceback.format_exception(kind, error, trace))))


def _written(folder: Path, now: datetime, text: str) -> Path:
    """mkstemp: readable by the user alone, since a command line may hold a name or an address."""
    handle, name = tempfile.mkstemp(prefix=f"sentdist-{now:%Y%m%d-%H%M%S}-", suffix=".txt", dir=folder, text=True)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return Path(name)


# Everything heavier than typer is imported inside the commands: `sentdist --help` and `sentdist plan` must not wait for torch or Ray.


MISTAKE, FAILURE = 2, 1  # exit codes: what a person can correct in what was typed or given; a disk that fails, or an unexpected error
# How click ends a command itself. By typer's version ClickException, an ancestor of BadParameter, is click's or typer's own.
_OWN_ENDINGS: tuple[type[BaseException], ...] = (typer.Exit, typer.Abort, typer.BadParameter.__mro__[2], BrokenPipeError)


class _Commands(TyperGroup):
    """Tells a SentdistError in one sentence (exit code 2, or 1 where a disk or file server failed), any other in one line
    with the place of its traceback (1); `--debug` shows it."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        _name_values(command)
        return command

    def invoke(self, ctx: Any) -> Any:
        collect_rarely()
        try:
            with explain_disk_errors("this command"):
                return super().invoke(ctx)
        except SentdistError as error:
            if ctx.params.get("debug"):
                sys.excepthook = print_traceback
                raise
            _tell(str(error))
            raise typer.Exit(FAILURE if _is_of_a_disk(error) else MISTAKE) from None
        except _OWN_ENDINGS as ending:
            said = str(getattr(ending, "message", ""))
            if "extra argument" in said and ".yaml" in said:
                ending.message = f"{said}: one recipe a command"  # type: ignore[attr-defined]
            raise
        except SystemExit as ending:
            raise with_signal_code(ending) from None
        except Exception as error:
            if ctx.params.get("debug"):
                sys.excepthook = print_traceback
                raise
            said = first_line(error)
            name = type(error).__name__
            _tell(f"Unexpected error: {name if said == name else f'{name}: {said}'}. The traceback is in {kept_traceback(error)}.")
            raise typer.Exit(FAILURE) from error


def _name_values(command: Any) -> None:
    """Have help call the values of arguments and options RECIPE, TEXT or NUMBER, not by Python's types."""
    for parameter in getattr(command, "params", ()):
        if parameter.metavar is None and not getattr(parameter, "is_flag", False):
            kind = str(
                getattr(getattr(parameter, "type_descriptor", None), "annotation", None) or parameter.type
            ).lower()  # by typer's version
            named = "NUMBER" if "int" in kind or "float" in kind else "PATH" if "path" in kind or "file" in kind else "TEXT"
            parameter.metavar = str(parameter.name).upper() if parameter.param_type_name == "argument" else named
    for one in getattr(command, "commands", {}).values():
        _name_values(one)


def _is_of_a_disk(error: SentdistError) -> bool:
    """Whether it says that a disk or file server failed or refused, not that something was given which cannot be used."""
    cause = error.__cause__
    return isinstance(cause, OSError) and (isinstance(error, StoreError) or words_for(cause) is not None or cause.errno in NO_RIGHT)


def _tell(sentence: str) -> None:
    open_console(stderr=True).print(sentence, style="red", markup=False, highlight=False, soft_wrap=True)


COMMANDS = (
    recipes.plan,
    recipes.run,
    recipes.sweep,
    recipes.submit,
    recipes.stop,
    train.train,
    train.tune,
    reporting.objectives,
    reporting.tasks,
    reporting.recipes,
    reporting.models,
    recipes.schema,
    reporting.leaks,
    scoring.evaluate,
    scoring.compare,
    encoders.encode,
    encoders.similarity,
    nearest.search,
    encoders.export,
    encoders.pin,
    encoders.push,
    reporting.report,
    reporting.explain,
    reporting.track,
    servers.serve,
    servers.up,
    servers.down,
    servers.leave,
    servers.doctor,
)

app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train sentence encoders on Ray: recipes in, shared stages, honest comparisons out.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sentdist {version('sentdist')}, Python {platform.python_version()}")
        raise typer.Exit


@app.callback()
def main(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback for errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version; `sentdist doctor` says more.", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


for command in COMMANDS:
    app.command()(command)
app.add_typer(store.store_app, name="store")
app.add_typer(store.bank_app, name="bank")
