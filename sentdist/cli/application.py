"""The Typer application: all commands in the order of `sentdist --help`, and the handling of their errors."""

from __future__ import annotations

import platform
import sys
import traceback
from importlib.metadata import version
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sentdist.cli import encoders, recipes, scoring, servers, store, train
from sentdist.cli.printing import open_console
from sentdist.errors import NO_RIGHT, SentdistError, StoreError, explain_disk_errors, words_for
from sentdist.machine import collect_rarely, with_signal_code
from sentdist.text import without_secrets


def print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback without secrets in addresses; replaces `sys.excepthook`."""
    sys.stderr.write(without_secrets("".join(traceback.format_exception(kind, error, trace))))


# Everything heavier than typer is imported inside the commands: `sentdist --help` and `sentdist plan` must not wait for torch or Ray.

MISTAKE, FAILURE = 2, 1  # exit codes: an error in the input; a failing disk or an unexpected error
# Exceptions by which click ends a command. By typer's version, ClickException, an ancestor of BadParameter, is click's or typer's.
_OWN_ENDINGS: tuple[type[BaseException], ...] = (typer.Exit, typer.Abort, typer.BadParameter.__mro__[2], BrokenPipeError)


class _Commands(TyperGroup):
    """Prints a SentdistError as one sentence (exit code 2, or 1 if a disk or file server failed), other errors with their traceback (1)."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(limit=100)) for name in group])

    def invoke(self, ctx: Any) -> Any:
        collect_rarely()
        try:
            with explain_disk_errors("this command"):
                return super().invoke(ctx)
        except _OWN_ENDINGS:
            raise
        except SystemExit as ending:
            raise with_signal_code(ending) from None
        except Exception as error:
            if not isinstance(error, SentdistError) or ctx.params.get("debug"):
                sys.excepthook = print_traceback
                raise
            open_console(stderr=True).print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(FAILURE if _is_of_a_disk(error) else MISTAKE) from None


def _is_of_a_disk(error: SentdistError) -> bool:
    """Whether a disk or file server failed or refused, not whether the input is wrong."""
    cause = error.__cause__
    return isinstance(cause, OSError) and (isinstance(error, StoreError) or words_for(cause) is not None or cause.errno in NO_RIGHT)


GROUPS: dict[str, dict[str, Any]] = {
    "Start": {"up": servers.up, "down": servers.down, "doctor": servers.doctor},
    "Your own data": {"train": train.train, "tune": train.tune},
    "Recipes": {
        "plan": recipes.plan,
        "sweep": recipes.sweep,
        "submit": recipes.submit,
        "stop": recipes.stop,
        "report": recipes.report,
    },
    "Encoders": {
        "encode": encoders.encode,
        "search": encoders.search,
        "evaluate": scoring.evaluate,
        "compare": scoring.compare,
        "export": encoders.export,
    },
    "Housekeeping": {"list": store.list_what, "store": store.store_app},
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
