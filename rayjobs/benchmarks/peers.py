"""The two sides of the speed benchmark: sentdist, and sentence-transformers' own trainer and encoder in their default form.

Each peer is a generator that does one unit of work (an optimizer step, a pass over sentences) a sample and yields its seconds.
"""

from __future__ import annotations

import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import torch


@dataclass(frozen=True, kw_only=True)
class Work:
    """What both sides do: the same encoder, rows, loss, batch size, length and precision."""

    encoder: str  # folder of the checkpoint
    triplets: pa.Table  # anchor, positive, negative
    batch_size: int
    max_length: int
    precision: str
    temperature: float
    threads: int
    seed: int = 0
    device: str = "cpu"
    micro_batch: int | None = None  # sentences whose activations are held at a time; ours only
    recompute_layers: bool = False  # ours only
    tokens_per_batch: int = 4096  # of an encoding; ours only
    num_sentences: int = 2000  # to be encoded

    @property
    def sentences_per_step(self) -> int:
        return 3 * self.batch_size


def sentdist_training(work: Work) -> Iterator[dict[str, float]]:
    """One optimizer step a draw, by the same session that a recipe's training stage uses."""
    from sentdist.learning.engine import TorchEngine

    yield from training_steps(work, partial(TorchEngine, device=work.device))


def training_steps(work: Work, make_engine: Callable[..., Any]) -> Iterator[dict[str, float]]:
    """One optimizer step of a session a draw."""
    from sentdist.corpora.rows import RowsCorpus
    from sentdist.data.corpus import build_corpus
    from sentdist.objectives.info_nce import InfoNCE
    from sentdist.recipe.sections import Runtime
    from sentdist.recipe.specs import EncoderSpec, Training
    from sentdist.recipe.stages import Train
    from sentdist.stages.context import Context
    from sentdist.stages.train import TrainSession
    from sentdist.store.store import ArtifactStore

    torch.set_num_threads(work.threads)
    with tempfile.TemporaryDirectory() as scratch:
        runtime = Runtime(micro_batch=work.micro_batch, recompute_layers=work.recompute_layers)
        context = Context(store=ArtifactStore(scratch), folders={"benchmark": work.encoder}, runtime=runtime)
        corpus = RowsCorpus(source="benchmark", source_revision="benchmark", columns=tuple(work.triplets.column_names))
        with context.store.staged() as folder:
            build_corpus(work.triplets, columns=corpus.columns, folder=folder, limit=None, seed=0)
            context.store.commit(corpus, folder, seconds=0.0, runtime={}, environment={}, results={})
        training = Training(batch_size=work.batch_size, epochs=100, max_length=work.max_length, precision=work.precision)  # type: ignore[arg-type]
        encoder = EncoderSpec(checkpoint="benchmark", revision="benchmark")
        stage = Train(encoder=encoder, corpus=corpus, objective=InfoNCE(temperature=work.temperature), training=training, seed=work.seed)
        started = time.perf_counter()
        for event in TrainSession(stage, context, make_engine=make_engine, bank=None).events():
            seconds = getattr(event, "seconds")  # noqa: B009 - without a selection every event is a StepReport
            yield {"seconds": time.perf_counter() - started, **{part: getattr(seconds, part) for part in PARTS}}
            started = time.perf_counter()


PARTS = ("data", "forward", "loss", "backward", "optimizer", "waiting")


def peer_training(work: Work) -> Iterator[dict[str, float]]:
    """One optimizer step a draw, by SentenceTransformerTrainer with MultipleNegativesRankingLoss.

    The trainer owns its loop, so it runs in a thread and is held at the end of each step until the next draw.
    """
    torch.set_num_threads(work.threads)
    steps: queue.Queue[dict[str, float]] = queue.Queue()
    go = threading.Semaphore(0)
    threading.Thread(target=_run_peer_trainer, args=(work, steps, go), daemon=True).start()
    while True:
        go.release()
        yield steps.get()


def _run_peer_trainer(work: Work, steps: queue.Queue[dict[str, float]], go: threading.Semaphore) -> None:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    torch.set_num_threads(work.threads)

    class HeldAtEachStep(TrainerCallback):
        started = 0.0

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            go.acquire()
            self.started = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            steps.put({"seconds": time.perf_counter() - self.started})
            go.acquire()
            self.started = time.perf_counter()

    model = SentenceTransformer(work.encoder, device="cpu")
    model.max_seq_length = work.max_length
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=scratch, per_device_train_batch_size=work.batch_size, num_train_epochs=100, learning_rate=2e-5, warmup_ratio=0.1,
            optim="adamw_torch_fused", bf16=work.precision == "bf16", use_cpu=True, save_strategy="no", logging_strategy="no",
            report_to="none", disable_tqdm=True, seed=work.seed, dataloader_drop_last=True,
        )  # fmt: skip
        rows = Dataset(work.triplets)
        loss = MultipleNegativesRankingLoss(model, scale=1.0 / work.temperature)
        SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss, callbacks=[HeldAtEachStep()]).train()


def sentdist_encoding(work: Work) -> Iterator[dict[str, float]]:
    """All anchors and positives encoded once a draw, tokenizing included."""
    from sentdist.learning.encoder.encode import encode
    from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
    from sentdist.learning.precision import apply_matmul_precision

    torch.set_num_threads(work.threads)
    apply_matmul_precision(torch.device(work.device), work.precision)
    encoder = SentenceEncoder.load(work.encoder).to(work.device)
    encoder.eval()
    sentences = encoding_sentences(work)
    while True:
        started = time.perf_counter()
        encode(
            encoder, sentences, max_length=work.max_length, precision=work.precision, tokens_per_batch=work.tokens_per_batch
        )  # fmt: skip
        yield {"seconds": time.perf_counter() - started}


def peer_encoding(work: Work) -> Iterator[dict[str, float]]:
    """The same sentences by SentenceTransformer.encode with its default arguments; its weights in bfloat16 where that is asked for."""
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(work.threads)
    model = SentenceTransformer(
        work.encoder, device="cpu", model_kwargs={"dtype": torch.bfloat16 if work.precision == "bf16" else torch.float32}
    )
    model.max_seq_length = work.max_length
    sentences = encoding_sentences(work)
    while True:
        started = time.perf_counter()
        model.encode(sentences, show_progress_bar=False)
        yield {"seconds": time.perf_counter() - started}


def encoding_sentences(work: Work) -> list[str]:
    """The first unique sentences of the triplets, anchors and positives alternating."""
    columns = [work.triplets.column(number).to_pylist() for number in (0, 1)]
    return list(dict.fromkeys(sentence for pair in zip(*columns, strict=True) for sentence in pair))[: work.num_sentences]


def packaged_encoder() -> str:
    """The folder of the packaged MiniLM."""
    from sentdist.learning.encoder.find_checkpoint import find_checkpoint

    return str(find_checkpoint("minilm-l6"))


PEERS = {
    "training": {"sentdist": sentdist_training, "sentence-transformers": peer_training},
    "encoding": {"sentdist": sentdist_encoding, "sentence-transformers": peer_encoding},
}
