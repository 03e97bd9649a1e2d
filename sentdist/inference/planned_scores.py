"""The scores of an encoder in memory: planned first, so that a mistake is told before anything is encoded, then made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sentdist.inference.own_files import own_files
from sentdist.inference.ready_encoder import LoadedEncoder
from sentdist.plan.runtime import Runtime
from sentdist.plan.stages import Scores
from sentdist.stages.context import Context
from sentdist.stages.planning.planned import planned_evaluation
from sentdist.stages.scores.build import build_scores
from sentdist.store.store import Artifact, ArtifactStore


@dataclass(frozen=True, kw_only=True)
class PlannedScores:
    """A stage of scores and where it is carried out. checkpoint: what its encoder was loaded from. names: of its tasks and groups, as they
    stand there."""

    checkpoint: str
    stage: Scores
    context: Context
    names: tuple[str, ...]

    @classmethod
    def of(cls, loaded: LoadedEncoder, tasks: Sequence[str], *, store: ArtifactStore, data: Path | None) -> PlannedScores:
        """Of an encoder on tasks; files of one's own by their paths, see `own_files`.

        Raises:
            RecipeError, DataError, EncoderError: as `planned_evaluation`.
        """
        names, found = own_files(tasks, data)
        use = replace(loaded.use, pooling=loaded.encoder.pooling)
        runtime = Runtime(engine="torch", gpus_per_worker=float(loaded.encoder.device.type == "cuda"))
        stage, context = planned_evaluation(use, names, runtime=runtime, store=store, data=found)
        return cls(checkpoint=use.checkpoint, stage=stage, context=context, names=names)

    def made(self) -> Artifact:
        """From the store, or made now."""
        return self.context.store.get(self.stage) or build_scores(self.stage, self.context)
