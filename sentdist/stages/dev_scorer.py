"""The dev score of a training, computed again and again by all its ranks."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from sentdist.learning.encoder.batch import TokenBatch
from sentdist.learning.encoder.encode import tokens_at_once
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.freed_memory import give_back_freed_memory
from sentdist.learning.objective import Objective
from sentdist.learning.shared_sentences import SharedSentences
from sentdist.plan.selection import Selection
from sentdist.plan.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.scores.by_relation import mean_of_parts, score_by
from sentdist.stages.scores.scorer import live_scorer
from sentdist.stages.scores.view import viewed
from sentdist.stages.tasks.load import load_task


class DevScorer:
    """The tasks of a selection, their sentences tokenized once. objective: of the training, whose relations may score pairs."""

    def __init__(self, stage: Train, selection: Selection, context: Context, *, encoder: SentenceEncoder, objective: Objective) -> None:
        self.tasks = tuple(load_task(task, context.data_root, context.folders) for task in selection.tasks)
        self._stage, self._selection = stage, selection
        self._encoder, self._objective = encoder, objective
        at_once = context.runtime.tokens_per_batch or tokens_at_once(encoder.device)
        self._sentences = [SharedSentences(task.sentences, encoder.tokenize, tokens_per_batch=at_once) for task in self.tasks]

    def score(self, encode: Callable[[TokenBatch], Tensor]) -> float | None:
        """The score × 100 of the encoder as it is, dropout off; None where it is not defined. All ranks call it together."""
        self._encoder.eval()
        try:
            embeddings = [sentences.embedded(encode) for sentences in self._sentences]
        finally:
            self._encoder.train()
        give_back_freed_memory()
        view = self._selection.view
        scorer = live_scorer(self._objective, view.relations)
        scores = [
            score_by(task, viewed(embeddings_SD, view, where=self._stage.label, objective=self._stage.objective), scorer)
            for task, embeddings_SD in zip(self.tasks, embeddings, strict=True)
        ]
        return mean_of_parts([[scores[place] for place in part] for part in self._selection.places])
