"""Embed the sentences of an evaluation, keep and reuse embeddings; torch is loaded only where this process embeds."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentdist.errors import ArtifactLost, RecipeError
from sentdist.evaluation.geometry import postprocess
from sentdist.files import drop_remedy, read_array, read_parquet
from sentdist.recipe.checks import parts_of
from sentdist.recipe.objectives import AnyObjective
from sentdist.recipe.specs import EncoderSpec, LexicalSpec, Precision, TaskPrompts, View
from sentdist.recipe.stages import Encoded, Scores, Train
from sentdist.stages.context import Context, checkpoint_of, commit, folder_of, hub_revision, note_input
from sentdist.tasks.kinds import TASK_KINDS
from sentdist.tasks.task import LoadedTask, Task

if TYPE_CHECKING:
    from sentdist.learning.encoder.sentence_encoder import SentenceEncoder


class Embed(Protocol):
    """Maps S sentences to (S, D) float32 embeddings."""

    def __call__(self, sentences: list[str], prompt: str = "") -> np.ndarray:
        """Embed each sentence after `prompt`; raise EncoderError if the prompt leaves no token for a sentence."""
        ...


MakeEmbed = Callable[[Scores, Context], Embed]
OnProgress = Callable[[int, int], None]  # sentences done, of how many


def embed_here(stage: Scores, context: Context, *, on_progress: OnProgress | None = None) -> Embed:
    """Return a function that embeds with the stage's encoder in this process."""
    from sentdist.learning.encoder.encode import encode
    from sentdist.learning.encoder.tokens import check_room, tokens_of_prompt

    assert not isinstance(stage.encoder, LexicalSpec), "words alone have no embeddings"
    of, encoder = stage.encoder, frozen_encoder(stage.encoder, context, precision=stage.precision)

    def tokens_behind(prompt: str) -> int:
        if not prompt:
            return 0
        num_tokens, name = tokens_of_prompt(encoder.tokenizer, prompt), (of.encoder if isinstance(of, Train) else of).checkpoint
        check_room(prompt, num_tokens, longest=stage.max_length or encoder.max_length, checkpoint=name)
        return encoder.tokens_not_pooled(num_tokens, name=name)

    def embed(sentences: list[str], prompt: str = "") -> np.ndarray:
        return encode(
            encoder,
            [f"{prompt}{sentence}" for sentence in sentences] if prompt else sentences,
            behind=tokens_behind(prompt),
            max_length=stage.max_length,
            tokens_per_batch=context.runtime.tokens_per_batch,
            precision=stage.precision,
            on_progress=None if on_progress is None else lambda done: on_progress(done, len(sentences)),
        )

    return embed


def frozen_encoder(encoder: EncoderSpec | Train, context: Context, *, precision: Precision) -> SentenceEncoder:
    """Load a trained or untouched encoder without dropout, and set the precision of this process."""
    import torch

    from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
    from sentdist.learning.precision import apply_matmul_precision
    from sentdist.stages.fit import device_of

    torch.manual_seed(0)  # an untouched checkpoint may lack the head that its pooling asks for; an untrained one has random weights
    if isinstance(encoder, Train):
        loaded = SentenceEncoder.load(folder_of(encoder, context), pooling=encoder.encoder.pooling)
    else:
        loaded = SentenceEncoder.load(
            checkpoint_of(encoder, context),
            revision=hub_revision(encoder, context),
            pooling=encoder.pooling,
            initialization=encoder.initialization,
            layers=encoder.layers,
        )
    device = device_of(context.runtime)
    apply_matmul_precision(device, precision)
    return loaded.to(device).eval()


DIGESTS, EMBEDDINGS = "digests.parquet", "embeddings.npy"


def kept_or_encoded(
    stage: Scores,
    of: EncoderSpec | Train,
    sentences: Sequence[str],
    context: Context,
    encode: Callable[[list[str]], np.ndarray],
    *,
    prompt: str = "",
) -> np.ndarray:
    """Return (S, D) float32 embeddings of S distinct sentences: from the store, the others by `encode`, which are then stored.

    Stored embeddings depend on encoder, length, precision and prompt; their last digits also on the batch in which they were encoded.
    """
    started = time.perf_counter()
    digests = [hashlib.sha256(sentence.encode()).hexdigest()[:32] for sentence in sentences]
    wanted = Encoded(encoder=of, max_length=stage.max_length, precision=stage.precision, sentences="", prompt=prompt)
    known = _kept(wanted, set(digests), context)
    missing = [row for row, digest in enumerate(digests) if digest not in known]
    if missing:
        found_SD = encode([sentences[row] for row in missing])
        new = [digests[row] for row in missing]
        total = hashlib.sha256("".join(new).encode()).hexdigest()[:16]
        made = wanted.model_copy(update={"sentences": f"sha256:{total}"})
        if context.store.get(made) is None:
            with context.store.staged() as folder:
                pq.write_table(pa.table({"digest": new}), folder / DIGESTS)
                np.save(folder / EMBEDDINGS, found_SD)
                commit(made, folder, context, seconds=time.perf_counter() - started, results={"num_sentences": len(new)})
        known |= dict(zip(new, found_SD, strict=True))
    return np.stack([known[digest] for digest in digests]).astype(np.float32)


def _kept(wanted: Encoded, digests: set[str], context: Context) -> dict[str, np.ndarray]:
    """The rows of all artifacts of this encoder, length, precision and prompt that are among `digests`."""
    fields = _beside_sentences(wanted.canonical()["fields"])
    found: dict[str, np.ndarray] = {}
    for artifact in context.store.artifacts(Encoded.kind):
        if fields == _beside_sentences(artifact.record.stage["fields"]):
            try:
                folder = context.store.folder(artifact)
            except ArtifactLost:  # moved aside: these sentences are encoded again
                continue
            note_input(context.store, artifact, folder)
            embeddings = read_array(folder / EMBEDDINGS, remedy=drop_remedy(folder))
            names = read_parquet(folder / DIGESTS, columns=["digest"], remedy=drop_remedy(folder))["digest"].to_pylist()
            found |= {name: embeddings[row] for row, name in enumerate(names) if name in digests}
    return found


def _beside_sentences(fields: object) -> dict[str, object]:
    """All fields that embeddings depend on except the sentences; without a prompt there is no such field."""
    assert isinstance(fields, dict)
    return {name: value for name, value in fields.items() if name != "sentences"}


def viewed(embeddings_SD: np.ndarray, view: View, *, where: str, objective: AnyObjective | None = None) -> np.ndarray:
    """Return the embeddings of a view: some of the channels, with the mean or all correlation removed.

    Args:
        objective: The encoder's training objective, whose parts a view may name.

    Raises:
        RecipeError: channels that the embeddings do not have.
    """
    if view.channels is not None:
        parts = (None if objective is None else parts_of(objective, embeddings_SD.shape[1])) or {}
        first, last = parts[view.channels] if isinstance(view.channels, str) else view.channels
        if not 0 <= first < last <= embeddings_SD.shape[1]:
            raise RecipeError(
                where=f"{where}: view.channels", found=f"{first} to {last}",
                expected=f"two numbers from 0 to {embeddings_SD.shape[1]}, the lower one first", remedy="Correct the view.",
            )  # fmt: skip
        embeddings_SD = embeddings_SD[:, first:last]
    return postprocess(embeddings_SD, view.postprocess)


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddedTasks:
    """Embeddings of the distinct texts of all tasks."""

    embeddings: np.ndarray  # (S, D)
    rows: dict[str, dict[str, int]]  # prompt -> text -> row
    prompts: TaskPrompts

    @classmethod
    def of(cls, stage: Scores, of: EncoderSpec | Train, tasks: Sequence[LoadedTask], context: Context, embed: Embed) -> EmbeddedTasks:
        """Embed the texts of a stage's tasks, with `embed` where the store lacks them."""
        texts: dict[str, dict[str, None]] = {}
        for planned, task in zip(stage.tasks, tasks, strict=True):
            for prompt, text in _with_prompts(planned, task, stage.prompts):
                texts.setdefault(prompt, {})[text] = None
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

    def of_task(self, planned: Task, task: LoadedTask) -> np.ndarray:
        """Return the embeddings of `task.sentences`, in their order."""
        return self.embeddings[[self.rows[prompt][text] for prompt, text in _with_prompts(planned, task, self.prompts)]]

    def of_sentences(self, sentences: Sequence[str]) -> np.ndarray:
        """Return the embeddings of sentences of tasks without queries, repetitions included."""
        row = self.rows[self.prompts.sentence]
        return self.embeddings[[row[sentence] for sentence in sentences]]


def _with_prompts(planned: Task, task: LoadedTask, prompts: TaskPrompts) -> Iterator[tuple[str, str]]:
    """Each text of a task with its prompt before it."""
    if not TASK_KINDS[planned.kind].has_queries:
        yield from ((prompts.sentence, text) for text in task.sentences)
        return
    for text, is_query in zip(task.sentences, task.are_queries, strict=True):
        yield (prompts.query if is_query else prompts.document), text
