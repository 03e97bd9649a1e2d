"""The scores of an encoder: planned first, so that a mistake is found before anything is loaded, then made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sentdist.errors import RecipeError
from sentdist.inference.own_files import own_files
from sentdist.plan.evaluation import is_own_rows
from sentdist.plan.runtime import Runtime
from sentdist.plan.specs import EncoderSpec, EncoderUse
from sentdist.plan.stages import Scores
from sentdist.plan.task_kinds import TASK_KINDS, own_rows_of
from sentdist.plan.task_names import task_names
from sentdist.plan.tasks import TASKS
from sentdist.stages.context import Context
from sentdist.stages.planning.planned import planned_evaluation
from sentdist.stages.scores.embed_sentences import MakeEmbed, embed_here
from sentdist.store.store import Artifact, ArtifactStore


def _check_compared(tasks: Sequence[str]) -> None:
    """Raise RecipeError for tasks whose scores say of no encoder that it is the better one."""
    unfit = next((task for task in task_names(tasks) if task in TASKS and not TASK_KINDS[TASKS[task].kind].is_compared), None)
    if unfit is not None:
        raise RecipeError(
            where="sentdist compare: tasks", found=f"{unfit}, of which no value is the better one", expected="tasks that can be compared",
            remedy="Leave it out; `sentdist evaluate` shows its values.",
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PlannedScores:
    """A stage of scores and where it is built. checkpoint: its encoder as it was asked for. names: of its tasks and groups, as they
    stand there; the rows of own=FILE by the names of their scores. notes: on the data."""

    checkpoint: str
    stage: Scores
    context: Context
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        use: EncoderUse,
        tasks: Sequence[str],
        *,
        store: ArtifactStore,
        data: Path | None,
        runtime: Runtime | None = None,
        command: str = "evaluate",
    ) -> PlannedScores:
        """Plan the scores of an encoder on tasks; one's own files are named by paths, see `own_files`. runtime: None is one process.
        command: `evaluate` or `compare`; named in errors.

        Raises:
            RecipeError, DataError, EncoderError: as `planned_evaluation`.
        """
        if command == "compare":
            _check_compared(tasks)
        names, found = own_files(tasks, data)
        stage, context, notes = planned_evaluation(
            use, names, runtime=runtime or Runtime(engine="torch"), store=store, data=found, command=command
        )
        if data is not None and found != data:
            notes = (
                f"Read in {found}, for {data} has no such file: "
                f"{', '.join(task for task in names if '=' in task and not is_own_rows(task))}",
                *notes,
            )
        if any(map(is_own_rows, names)):
            own = [task.name for task in stage.tasks if own_rows_of(task) is not None]
            names = tuple(dict.fromkeys(scored for name in names for scored in (own if is_own_rows(name) else (name,))))
        return cls(checkpoint=use.checkpoint, stage=stage, context=context, names=names, notes=notes)

    @property
    def pooling(self) -> str:
        """How the token vectors of the encoder become one embedding."""
        assert isinstance(self.stage.encoder, EncoderSpec), "encoders are scored as they are given"
        return self.stage.encoder.pooling

    @property
    def known(self) -> Artifact | None:
        """What the store has."""
        return self.context.store.get(self.stage)

    def here(self) -> tuple[PlannedScores, str]:
        """The same, with the device of this process decided, and what to say of that.

        Raises:
            ResourceError: tf32 or bf16 on a device that has no such products.
        """
        from sentdist.stages.devices import old_gpu_here, on_this_machine
        from sentdist.stages.precisions import check_precisions

        runtime, devices = on_this_machine(self.context.runtime)
        check_precisions([self.stage], runtime, old_gpu=old_gpu_here(runtime))
        return replace(self, context=replace(self.context, runtime=runtime)), devices

    def made(self) -> Artifact:
        """The scores, from the store or made now in this process."""
        return self.known or self.here()[0].encoded()

    def encoded(self, make_embed: MakeEmbed = embed_here, on_fit: Callable[[str], None] | None = None) -> Artifact:
        """Made now. make_embed: what embeds sentences. on_fit: as `build_scores`."""
        from sentdist.stages.scores.build import build_scores  # brings scipy: a mistake in a name is reported before

        return build_scores(self.stage, self.context, make_embed=make_embed, on_fit=on_fit)
