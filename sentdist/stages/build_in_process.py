"""Which body builds which kind of stage in one process; trainings are apart, for they know where they run."""

from __future__ import annotations

from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.stage import Stage
from sentdist.plan.stages import Bank, Scores, Targets
from sentdist.stages.context import Context
from sentdist.store.store import Artifact


def build_in_process(stage: Stage, context: Context) -> Artifact:
    """The artifact of a stage that is no training, committed.

    Raises:
        TypeError: a kind of which nothing is known here.
    """
    # torch and transformers take seconds to import, so each kind of stage imports its own body.
    match stage:
        case CorpusStage():
            from sentdist.stages.corpora.build import build_corpus_stage

            return build_corpus_stage(stage, context)
        case Bank() | Targets():
            from sentdist.stages.sharded import body_of, build_in_shards

            return build_in_shards(stage, context, body=body_of(stage, context))
        case Scores():
            from sentdist.stages.scores.build import build_scores

            return build_scores(stage, context)
    raise TypeError(f"no body for the stage {stage.kind}")
