"""The Typer application: all commands in the order of `sentdist --help`, and the handling of their errors."""

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

from sentdist.cli import encoders, listing, nearest, recipes, reporting, scoring, servers, store, train
from sentdist.cli.printing import open_console
from sentdist.errors import NO_RIGHT, SentdistError, StoreError, explain_disk_errors, first_line, words_for
from sentdist.files import cache_folder
from sentdist.machine import collect_rarely, with_signal_code
from sentdist.text import without_secrets


def kept_traceback(error: BaseException) -> Path:
    """Write traceback, command and versions to a private file in the cache folder, else the temporary folder; return its path."""
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
    """Print a traceback without secrets in addresses; replaces `sys.excepthook`."""
    sys.stderr.write(without_secrets("".join(traceback.format_exception(kind, error, trace))))


def _written(folder: Path, now: datetime, text: str) -> Path:
    """mkstemp: readable by the user only, since a command line may hold a name or an address."""
    handle, name = tempfile.mkstemp(prefix=f"sentdist-{now:%Y%m%d-%H%M%S}-", suffix=".txt", dir=folder, text=True)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return Path(name)


# Everything heavier than typer is imported inside the commands: `sentdist --help` and `sentdist plan` must not wait for torch or Ray.


MISTAKE, FAILURE = 2, 1  # exit codes: an error in the input; a failing disk or an unexpected error
# Exceptions by which click ends a command. By typer's version, ClickException, an ancestor of BadParameter, is click's or typer's.
_OWN_ENDINGS: tuple[type[BaseException], ...] = (typer.Exit, typer.Abort, typer.BadParameter.__mro__[2], BrokenPipeError)


class _Commands(TyperGroup):
    """Prints a SentdistError as one sentence (exit code 2, or 1 if a disk or file server failed), other errors as one line with the path
    of their traceback (1); `--debug` shows it."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        _name_values(command)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(limit=100)) for name in group])

    def invoke(self, ctx: Any) -> Any:
        collect_rarely()
        try:
            with explain_disk_errors("this command"):
                return super().invoke(ctx)
        except SentdistError as error:
            if ctx.params.get("debug"):
                sys.excepthook = print_traceback
                raise
            _print_error(str(error))
            raise typer.Exit(FAILURE if _is_of_a_disk(error) else MISTAKE) from None
        except _OWN_ENDINGS:
            raise
        except SystemExit as ending:
            raise with_signal_code(ending) from None
        except Exception as error:
            if ctx.params.get("debug"):
                sys.excepthook = print_traceback
                raise
            line, name = first_line(error), type(error).__name__
            _print_error(f"Unexpected error: {name if line == name else f'{name}: {line}'}. The traceback is in {kept_traceback(error)}.")
            raise typer.Exit(FAILURE) from error


def _name_values(command: Any) -> None:
    """Have help show values as RECIPE, TEXT or NUMBER, not as Python types."""
    for parameter in getattr(command, "params", ()):
        annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None) or parameter.type  # by typer's version
        kind = str(annotation).lower()
        if parameter.metavar is None and not getattr(parameter, "is_flag", False) and "literal" not in kind and "choice" not in kind:
            value = "NUMBER" if "int" in kind or "float" in kind else "PATH" if "path" in kind else "TEXT"
            parameter.metavar = str(parameter.name).upper() if parameter.param_type_name == "argument" else value
    for one in getattr(command, "commands", {}).values():
        _name_values(one)


def _is_of_a_disk(error: SentdistError) -> bool:
    """Whether a disk or file server failed or refused, not whether the input is wrong."""
    cause = error.__cause__
    return isinstance(cause, OSError) and (isinstance(error, StoreError) or words_for(cause) is not None or cause.errno in NO_RIGHT)


def _print_error(sentence: str) -> None:
    open_console(stderr=True).print(sentence, style="red", markup=False, highlight=False, soft_wrap=True)


GROUPS: dict[str, dict[str, Any]] = {
    "Start": {"up": servers.up, "down": servers.down, "doctor": servers.doctor},
    "Your own data": {"train": train.train, "tune": train.tune},
    "Recipes": {
        "plan": recipes.plan,
        "sweep": recipes.sweep,
        "submit": recipes.submit,
        "stop": recipes.stop,
        "report": reporting.report,
    },
    "Encoders": {
        "encode": encoders.encode,
        "search": nearest.search,
        "evaluate": scoring.evaluate,
        "compare": scoring.compare,
        "export": encoders.export,
    },
    "Housekeeping": {"list": listing.list_what, "store": store.store_app},
}

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
        bool, typer.Option("--version", help="Print the version; see also `sentdist doctor`.", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


for group in GROUPS.values():
    for name, command in group.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
