"""The embeddings of the texts of several tasks: each different text behind its prompt is embedded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from sentdist.plan.specs import EncoderSpec, TaskPrompts
from sentdist.plan.stages import Scores, Train
from sentdist.plan.task_kinds import TASK_KINDS, ScoredTask
from sentdist.stages.context import Context
from sentdist.stages.scores.embed_sentences import Embed
from sentdist.stages.scores.embedding_cache import kept_or_encoded
from sentdist.stages.scores.view import viewed
from sentdist.stages.tasks.loaded_task import LoadedTask, QueryTask


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddedTasks:
    """(S, D) embeddings of S different texts of all tasks. rows: of each text, by the prompt that stands before it."""

    embeddings: np.ndarray
    rows: dict[str, dict[str, int]]
    prompts: TaskPrompts

    @classmethod
    def of(cls, stage: Scores, of: EncoderSpec | Train, tasks: Sequence[LoadedTask], context: Context, embed: Embed) -> EmbeddedTasks:
        """Embed the texts of a stage's tasks, by `embed` where the store does not keep them."""
        texts: dict[str, dict[str, None]] = {}
        for planned, task in zip(stage.tasks, tasks, strict=True):
            for prompt, sentences in _by_prompt(planned, task, stage.prompts):
                texts.setdefault(prompt, {}).update(dict.fromkeys(sentences))
        parts = []
        for prompt, unique in texts.items():
            encode = partial(embed, prompt=prompt) if prompt else embed
            kept = context.keeps_embeddings
            parts.append(kept_or_encoded(stage, of, list(unique), context, encode, prompt=prompt) if kept else encode(list(unique)))
        rows: dict[str, dict[str, int]] = {}
        first = 0
        for prompt, unique in texts.items():
            rows[prompt] = {sentence: row for row, sentence in enumerate(unique, first)}
            first += len(unique)
        embeddings_SD = parts[0] if len(parts) == 1 else np.concatenate(parts)
        view = viewed(embeddings_SD, stage.view, where=stage.label, objective=of.objective if isinstance(of, Train) else None)
        return cls(embeddings=view, rows=rows, prompts=stage.prompts)

    def of_task(self, planned: ScoredTask, task: LoadedTask) -> np.ndarray:
        """The embeddings of `task.sentences`, in their order."""
        if not TASK_KINDS[planned.kind].has_queries:
            return self.of_sentences(task.sentences)
        of_query, of_document = self.rows[self.prompts.query], self.rows[self.prompts.document]
        pairs = zip(task.sentences, cast(QueryTask, task).are_queries, strict=True)
        return self.embeddings[[(of_query if is_query else of_document)[text] for text, is_query in pairs]]

    def of_sentences(self, sentences: Sequence[str]) -> np.ndarray:
        """Those of sentences of tasks without queries, repetitions included."""
        row = self.rows[self.prompts.sentence]
        return self.embeddings[[row[sentence] for sentence in sentences]]


def _by_prompt(planned: ScoredTask, task: LoadedTask, prompts: TaskPrompts) -> list[tuple[str, Sequence[str]]]:
    """The texts of a task, each group with the prompt before it."""
    if not TASK_KINDS[planned.kind].has_queries:
        return [(prompts.sentence, task.sentences)]
    if prompts.query == prompts.document:
        return [(prompts.query, task.sentences)]
    both = list(zip(task.sentences, cast(QueryTask, task).are_queries, strict=True))
    return [
        (prompt, [text for text, is_query in both if is_query is of_query])
        for prompt, of_query in ((prompts.query, True), (prompts.document, False))
    ]
