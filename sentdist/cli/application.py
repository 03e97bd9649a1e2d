"""All commands in the order in which `sentdist --help` lists them, with how their errors are told."""

# Everything heavier than typer is imported inside the commands: `sentdist --help` and `sentdist plan` must not wait for torch or Ray.

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sentdist.cli import banks, building, health, leaking, reporting, scoring, searching, stored, using
from sentdist.cli.printing import open_console
from sentdist.errors import SentdistError


class _Commands(TyperGroup):
    """Tells a SentdistError in one sentence and ends with exit code 2; `--debug` shows where it came from."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SentdistError as error:
            if ctx.params.get("debug"):
                raise
            open_console(stderr=True).print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(2) from None


COMMANDS = (
    building.plan,
    building.run,
    building.sweep,
    building.stop,
    leaking.leaks,
    scoring.evaluate,
    using.encode,
    using.similarity,
    searching.search,
    using.export,
    reporting.report,
    reporting.explain,
    reporting.track,
    health.doctor,
)

app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train sentence encoders on Ray: recipes in, shared stages, honest comparisons out.",
)


@app.callback()
def main(debug: Annotated[bool, typer.Option("--debug", help="Show a traceback for errors.")] = False) -> None: ...


for command in COMMANDS:
    app.command()(command)
app.add_typer(stored.store_app, name="store")
app.add_typer(banks.bank_app, name="bank")
