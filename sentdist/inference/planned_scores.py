"""Plan the scores of an encoder, so that mistakes are found before anything is loaded, then compute them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sentdist.data.mirror import address_of
from sentdist.data.sources import has_source
from sentdist.errors import DataError, RecipeError
from sentdist.inference.opening import Prompt, Prompts
from sentdist.learning.encoder.declared import Checkpoint
from sentdist.learning.encoder.find_checkpoint import find_checkpoint
from sentdist.recipe.evaluation import is_own_rows
from sentdist.recipe.sections import Runtime
from sentdist.recipe.specs import AskedPrompts, EncoderSpec, EncoderUse, TaskPrompts, TextRole
from sentdist.recipe.stages import Scores
from sentdist.stages.context import Context
from sentdist.stages.embed import MakeEmbed, embed_here
from sentdist.stages.planned import planned_evaluation
from sentdist.stages.resolve import declared_folder
from sentdist.store.store import Artifact, ArtifactStore
from sentdist.tasks.cards import TASKS
from sentdist.tasks.kinds import OWN_KINDS, TASK_KINDS
from sentdist.tasks.names import own_parts, task_names

_NO_FILE = ("generated/", "hub:")  # prefixes of sources that are no files


def own_files(tasks: Sequence[str], data: Path | None) -> tuple[tuple[str, ...], Path | None]:
    """Return task names and their data root, where `sts=pairs.tsv` may be a path as in a shell.

    Without a data root, or if it has none of these files and the shell's path exists, the root becomes the current folder, or the nearest
    common parent of these files if one is elsewhere; names are relative to it.

    Raises:
        RecipeError: these files beside tasks whose data are below the data root.
    """
    sources = {task: source for task in tasks if (source := _own_source(task))}
    if data is not None:
        is_local = address_of(data) == str(data) and data.is_dir()  # the files of a remote root are not known in advance
        absent = {task: Path(source).expanduser() for task, source in sources.items() if is_local and not _is_below(source, data)}
        sources = {task: sources[task] for task, path in absent.items() if has_source(path.name, path.parent)}
        others = [task for task in tasks if task not in sources and not is_own_rows(task) and not _needs_no_file(task)]
        if sources and others:
            raise RecipeError(
                where=f"task {next(iter(sources))}", found=f"a file that is not below the data root {data}, beside {others[0]}, which is",
                expected="tasks whose data are below one folder", remedy="Score it in a separate command, or move it there.",
            )  # fmt: skip
    if not sources:
        return tuple(tasks), data
    here, paths = os.getcwd(), {task: os.path.abspath(os.path.expanduser(source)) for task, source in sources.items()}
    is_here = all(os.path.commonpath([here, path]) == here for path in paths.values())
    root = here if is_here else os.path.commonpath([os.path.dirname(path) for path in paths.values()])
    below = {task: Path(os.path.relpath(path, root)).as_posix() for task, path in paths.items()}
    return tuple(task.replace(sources[task], below[task], 1) if task in sources else task for task in tasks), Path(root)


def _is_below(source: str, data: Path) -> bool:
    """Whether the data root has this file or folder, given by a relative name."""
    path = Path(source).expanduser()
    return not path.is_absolute() and ".." not in path.parts and ((data / path).exists() or has_source(path.as_posix(), data))


def _needs_no_file(task: str) -> bool:
    """Whether a task's data are generated or come from the hub."""
    source = TASKS[task].source if task in TASKS else own_parts(task).source
    return source.startswith(_NO_FILE)


def _own_source(task: str) -> str:
    """The file in a user's task; empty if there is none."""
    own = own_parts(task)
    return own.source if own.kind in OWN_KINDS and not own.source.startswith(_NO_FILE) else ""


def _check_compared(tasks: Sequence[str]) -> None:
    """Raise RecipeError for tasks whose scores do not rank encoders."""
    unfit = next((task for task in task_names(tasks) if task in TASKS and not TASK_KINDS[TASKS[task].kind].is_compared), None)
    if unfit is not None:
        raise RecipeError(
            where="sentdist compare: tasks", found=f"{unfit}, whose values have no better or worse", expected="tasks that rank encoders",
            remedy="Leave it out; `sentdist evaluate` shows its values.",
        )  # fmt: skip


def _prompts_of(stage: Scores, context: Context, use: EncoderUse, asked: AskedPrompts) -> dict[TextRole, Prompt]:
    """The prompt for each role of texts in the stage's tasks."""
    roles = dict.fromkeys(role for task in stage.tasks for role in TASK_KINDS[task.kind].roles)
    asked = asked.or_else(use.prompts)
    for role in ("sentence", "query", "document"):
        if getattr(asked, role) is not None and role not in roles:
            raise DataError(
                where=f"encoder {use.checkpoint}: prompt of each {role}", found=f"tasks of {' and '.join(roles)} texts",
                expected=f"a task of {role} texts", remedy="Leave it out: it has no effect.",
            )  # fmt: skip
    if not roles:
        return {}
    assert isinstance(stage.encoder, EncoderSpec), "encoders are scored as they are given"
    folder = declared_folder(stage.encoder, context.folders) or find_checkpoint(use.checkpoint, revision=use.revision)
    known = Prompts.of(Checkpoint.open(folder), replace(use, prompts=asked))
    of_role = {"sentence": known.of_sentences, "query": known.of_queries, "document": known.of_documents}
    return {role: of_role[role]() for role in roles}


@dataclass(frozen=True, kw_only=True)
class PlannedScores:
    """A stage of scores and the context to build it in."""

    checkpoint: str  # as requested
    stage: Scores
    context: Context
    names: tuple[str, ...]  # of tasks and groups; for own=FILE the names of its scores
    notes: tuple[str, ...] = ()  # on the data
    prompts: tuple[Prompt, ...] = ()  # of the tasks' texts

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
        prompts: AskedPrompts | None = None,
    ) -> PlannedScores:
        """Plan the scores of an encoder on tasks.

        Args:
            use: the encoder.
            tasks: names, groups or user files, see `own_files`.
            store, data: where artifacts and data are.
            runtime: None: one process.
            command: `evaluate` or `compare`, for errors.
            prompts: instead of those of the use; by default as in sentence-transformers' evaluators.

        Raises:
            RecipeError, DataError, EncoderError: as `planned_evaluation` and `Prompts`; a prompt for which no task has texts.
        """
        if command == "compare":
            _check_compared(tasks)
        names, found = own_files(tasks, data)
        stage, context, notes = planned_evaluation(
            use, names, runtime=runtime or Runtime(engine="torch"), store=store, data=found, command=command
        )
        if data is not None and found != data:
            notes = (
                f"Read from {found}, since {data} has no such file: "
                f"{', '.join(task for task in names if '=' in task and not is_own_rows(task))}",
                *notes,
            )
        if any(map(is_own_rows, names)):
            own = [task.name for task in stage.tasks if task.own is not None]
            names = tuple(dict.fromkeys(scored for name in names for scored in (own if is_own_rows(name) else (name,))))
        used = _prompts_of(stage, context, use, prompts or AskedPrompts())
        texts = {role: prompt.text for role, prompt in used.items() if prompt.text}
        if texts:
            stage = stage.model_copy(update={"prompts": TaskPrompts.model_validate(texts)})
        return cls(checkpoint=use.checkpoint, stage=stage, context=context, names=names, notes=notes, prompts=tuple(used.values()))

    @property
    def pooling(self) -> str:
        """The pooling of the encoder."""
        assert isinstance(self.stage.encoder, EncoderSpec), "encoders are scored as they are given"
        return self.stage.encoder.pooling

    @property
    def known(self) -> Artifact | None:
        """The scores in the store, or None."""
        return self.context.store.get(self.stage)

    def here(self) -> tuple[PlannedScores, str]:
        """Choose the device of this process; return the plan with it and its description.

        Raises:
            ResourceError: tf32 or bf16 on a device without it.
        """
        from sentdist.stages.fit import check_precisions, old_gpu_here, on_this_machine

        runtime, devices = on_this_machine(self.context.runtime)
        check_precisions([self.stage], runtime, old_gpu=old_gpu_here(runtime))
        return replace(self, context=replace(self.context, runtime=runtime)), devices

    def made(self) -> Artifact:
        """Return the scores from the store, or compute them in this process."""
        return self.known or self.here()[0].encoded()

    def encoded(self, make_embed: MakeEmbed = embed_here, on_fit: Callable[[str], None] | None = None) -> Artifact:
        """Compute the scores; arguments as for `build_scores`."""
        from sentdist.stages.scores import build_scores  # imports scipy: mistakes in names are reported before

        return build_scores(self.stage, self.context, make_embed=make_embed, on_fit=on_fit)
