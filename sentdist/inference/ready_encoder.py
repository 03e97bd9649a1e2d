"""Load any encoder for use, identify it by facts, and embed sentences and files with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch

from sentdist.data.texts import TextColumns, Texts
from sentdist.errors import EncoderError, ResourceError
from sentdist.families import POOLINGS
from sentdist.inference.embedding_file import PROMPT, TEXTS, TextsDigest, embedding_writer
from sentdist.inference.opening import Prompts
from sentdist.learning.encoder.encode import TOKENS_ON_GPU, encode
from sentdist.learning.encoder.find_checkpoint import find_checkpoint
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import TokenBatch, UnknownWords, check_room, tokens_of_prompt
from sentdist.learning.freed_memory import keep_gpu_memory_whole
from sentdist.learning.precision import apply_matmul_precision
from sentdist.recipe.specs import EncoderUse
from sentdist.recipe.stage import Json
from sentdist.stages.fit import explained_if_full, whole_gpu, why_unusable
from sentdist.stages.resolve import EncoderDigest, digest_of_encoder


@dataclass(frozen=True, kw_only=True)
class LoadedEncoder:
    """An encoder in memory."""

    use: EncoderUse
    folder: Path
    encoder: SentenceEncoder
    digest: EncoderDigest
    matmul: str  # torch's float32 matmul precision
    unknown: UnknownWords = field(default_factory=UnknownWords, compare=False)  # embedded sentences without a known word

    @classmethod
    def load(cls, use: EncoderUse, device: str | None = None) -> LoadedEncoder:
        """Load an encoder in float32. device: None: a GPU that torch can use (a worker: the one it reserved), else the CPU.

        Raises:
            EncoderError: no such checkpoint, no tokenizer, an unsupported length, or a pooling whose dense layer it lacks.
        """
        return cls._loaded(use, device, use.precision)

    @classmethod
    def beside_workers(cls, use: EncoderUse) -> LoadedEncoder:
        """Load an encoder on the CPU, for a process whose workers embed on their own devices; tf32, which CPUs lack, becomes fp32.

        Raises:
            EncoderError: as `load`.
        """
        return cls._loaded(use, "cpu", "fp32" if use.precision == "tf32" else use.precision)

    @classmethod
    def _loaded(cls, use: EncoderUse, device: str | None, precision: str) -> LoadedEncoder:
        folder = find_checkpoint(use.checkpoint, revision=use.revision)
        encoder = SentenceEncoder.load(folder, pooling=use.pooling)
        encoder.checked_length(use.max_length)
        if POOLINGS[encoder.pooling].gives_dense and not encoder.checkpoint.modules_of("Dense"):
            raise EncoderError(
                where=f"encoder {use.checkpoint}: pooling {encoder.pooling}", found="no weights of a dense layer",
                expected="a folder with them, as written by training with this pooling",
                remedy=f"Use {POOLINGS[encoder.pooling].without_head}, which needs none.",
            )  # fmt: skip
        keep_gpu_memory_whole()  # before torch initialises the GPU
        place = torch.device(device or ("cpu" if why_unusable() else "cuda"))
        matmul = apply_matmul_precision(place, precision)
        digest = digest_of_encoder(folder, "encoder")
        with explained_if_full(partial(_full_gpu, use, use.max_length or encoder.max_length)):
            encoder.to(place).eval()
        made = cls(use=use, folder=folder, encoder=encoder, digest=digest, matmul=matmul)
        made._check_prompt()
        return made

    def with_prompt(self, text: str) -> LoadedEncoder:
        """Return the encoder with this prompt; "": none.

        Raises:
            EncoderError: a prompt that leaves no token for the sentence.
        """
        if text == self.use.prompt:
            return self
        made = replace(self, use=replace(self.use, prompt=text))
        made._check_prompt()
        return made

    @cached_property
    def prompts(self) -> Prompts:
        """The folder's prompts for sentence-transformers; raises EncoderError as `Prompts.of`."""
        return Prompts.of(self.encoder.checkpoint, self.use)

    def _check_prompt(self) -> None:
        check_room(self.use.prompt, self._tokens_of_prompt, longest=self.max_length, checkpoint=self.use.checkpoint)

    @cached_property
    def _tokens_of_prompt(self) -> int:
        return tokens_of_prompt(self.encoder.tokenizer, self.use.prompt)

    @cached_property
    def _tokens_not_pooled(self) -> int:
        return self.encoder.tokens_not_pooled(self._tokens_of_prompt, name=self.use.checkpoint)

    @property
    def width(self) -> int:
        return self.encoder.width

    @property
    def max_length(self) -> int:
        """Tokens to which sentences are truncated, including special ones: that of the use, else the encoder's."""
        return self.use.max_length or self.encoder.max_length

    @property
    def facts(self) -> dict[str, Json]:
        """All that embeddings depend on: equal facts give equal embeddings, up to rounding."""
        return {
            "encoder": self.digest.model,
            "tokenizer_and_modules": self.digest.further,
            "pooling": self.encoder.pooling,
            "max_length": self.max_length,
            "precision": self.use.precision,
            "normalized": self.use.normalize,
            **({PROMPT: self.use.prompt} if self.use.prompt else {}),
        }

    def embed(self, sentences: list[str]) -> np.ndarray:
        """Return (S, D) float32 embeddings, normalized if the use says so, with its prompt before each sentence.

        The prompt's tokens are not pooled if the folder says so (`include_prompt`) and its own pooling is used.

        Raises:
            EncoderError: non-finite embeddings, or zero embeddings to be normalized.
            ResourceError: the GPU's memory is full.
        """
        torch.set_float32_matmul_precision(self.matmul)  # global: another encoder may have been loaded since
        with explained_if_full(partial(_full_gpu, self.use, self.max_length)):
            read = [f"{self.use.prompt}{sentence}" for sentence in sentences]
            embeddings_SD = encode(
                self.encoder, read, max_length=self.use.max_length, precision=self.use.precision,
                on_tokens=self._count_unknown, behind=self._tokens_not_pooled,
            )  # fmt: skip
        lengths_S = np.linalg.norm(embeddings_SD, axis=1)
        if not np.isfinite(lengths_S).all() or (self.use.normalize and not lengths_S.all()):
            bad = int(np.argmin(np.isfinite(lengths_S) & (lengths_S > 0)))
            raise EncoderError(
                where=f"encoder {self.use.checkpoint}", found=f"an embedding of length {lengths_S[bad]} for {sentences[bad][:60]!r}",
                expected="finite embeddings" + (" of positive length" if self.use.normalize else ""),
                remedy="The encoder has diverged: look at its training loss, or use another.",
            )  # fmt: skip
        return embeddings_SD / lengths_S[:, None] if self.use.normalize else embeddings_SD

    def _count_unknown(self, tokens: TokenBatch, read: Sequence[str]) -> None:
        """Count sentences without a known word after the prompt."""
        sentences = [text.removeprefix(self.use.prompt) for text in read]
        self.unknown.count(self.encoder.tokenizer, tokens, sentences, behind=self._tokens_of_prompt)


def _full_gpu(use: EncoderUse, longest: int, free: int, total: int) -> ResourceError:
    return ResourceError(
        where=f"encoder {use.checkpoint}",
        found=f"{whole_gpu(free, total)} full with sentences of up to {longest} tokens, {TOKENS_ON_GPU} tokens at a time",
        expected="work that fits",
        remedy=f"Open it as {use.checkpoint}?max_length={max(3, longest // 2)}, use another GPU with CUDA_VISIBLE_DEVICES=1, or the "
        "CPU with CUDA_VISIBLE_DEVICES= before the command.",
    )


SENTENCES_AT_ONCE = 16_384  # embedded and written together: sorting by length gains nothing beyond that


EmbeddedBatches = Callable[[Texts], Iterator[tuple[TextColumns, np.ndarray]]]  # of a file, in order


def encode_file(
    loaded: LoadedEncoder, texts: Texts, out: Path, *, dtype: str = "float32", batches: EmbeddedBatches | None = None
) -> Iterator[int]:
    """Write the embeddings of all sentences to `out`; yield after each batch the number done.

    Memory holds one batch. An error, or a caller that stops early, leaves no file.

    Args:
        loaded: the encoder.
        texts: the sentences, with ids if they have a column.
        out: see `embedding_writer`.
        dtype: float32 or float16, in the file.
        batches: embeds the file; None: `loaded`, in this process.

    Raises:
        DataError: as `Texts.batches` and `embedding_writer`. EncoderError: as `LoadedEncoder.embed`.
    """
    done, digest = 0, TextsDigest()
    with_ids = texts.id_column is not None
    use = loaded.use
    facts = {**loaded.facts, PROMPT: use.prompt, "checkpoint": use.checkpoint, "source": texts.name, "dtype": dtype}
    with embedding_writer(out, width=loaded.width, dtype=dtype, facts=facts, with_ids=with_ids) as writer:
        for batch, embeddings_SD in (batches or partial(_embedded_here, loaded))(texts):
            sentences = batch[texts.columns[0]]
            writer.write(embeddings_SD, batch[texts.id_column] if texts.id_column is not None else None)
            digest.add(sentences)
            done += len(sentences)
            yield done
        facts[TEXTS] = digest.hex


def _embedded_here(loaded: LoadedEncoder, texts: Texts) -> Iterator[tuple[TextColumns, np.ndarray]]:
    for batch in texts.batches(SENTENCES_AT_ONCE):
        yield batch, loaded.embed(batch[texts.columns[0]])
