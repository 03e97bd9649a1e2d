"""The host's part of a training step beside the model: `python -m rayjobs.benchmarks.host_time`; processor milliseconds, least of five."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

NUM_SENTENCES = 200_000
MEAN_TOKENS = 15  # of NLI's sentences
WIDTH, NUM_ENCODERS = 384, 4


def main() -> None:
    """Print one line of JSON a batch size: making a batch (in the thread that works ahead), and the step around a stubbed model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=[64, 512, 4096])
    asked = parser.parse_args()
    import torch

    from sentdist.learning.bank import FileBank
    from sentdist.learning.encoder.tokens import Batch, TokenTable

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        table, bank = TokenTable.open(_write_tokens(Path(scratch))), FileBank(_write_banks(Path(scratch)))
        for num_rows in asked.rows:
            ids_CM = np.random.default_rng(1).integers(0, NUM_SENTENCES, size=(3, num_rows))
            tokens = table.batch(ids_CM)
            batch = Batch(tokens=tokens, num_columns=3, first_row=0, sentence_ids=ids_CM)
            found = {
                "tokens": _least(lambda ids_CM=ids_CM: table.batch(ids_CM)),  # type: ignore[misc]
                "bank": _least(lambda batch=batch: bank.prepared(batch)),  # type: ignore[misc]
                "micro_batch": _least(lambda tokens=tokens: tokens.take(range(tokens.num_sentences))),  # type: ignore[misc]
                "step": _least(_step(batch)),
            }
            print(json.dumps({"rows": num_rows, "num_tokens": tokens.num_tokens, **found}), flush=True)


def _step(batch: object) -> Callable[[], object]:
    """A step whose encoder gives ready embeddings of width 2 and whose objective sums them: what is left is ours."""
    import torch
    from torch import Tensor, nn

    from sentdist.learning.encoder.tokens import Batch, TokenBatch
    from sentdist.learning.engine import TorchEngine
    from sentdist.learning.loop import train_steps
    from sentdist.learning.objective import Objective
    from sentdist.learning.optimization import Optimization

    assert isinstance(batch, Batch)
    num_sentences = batch.tokens.num_sentences

    class Stub(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vectors = nn.Parameter(torch.ones(num_sentences, 2))

        def forward(self, tokens: TokenBatch) -> Tensor:
            return self.vectors * 1.0

    class Sum(Objective):
        def __call__(self, embeddings: Tensor, batch: Batch) -> Tensor:
            return embeddings.sum()

    engine = TorchEngine(Stub(), Optimization(num_steps=10))
    engine.runs_ahead = True
    return lambda: list(train_steps(engine, Sum(), [batch]))


def _least(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(5):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return round(1e3 * min(seconds), 2)


def _write_tokens(folder: Path) -> Path:
    from sentdist.learning.encoder.tokens import merge_shards, write_shard

    random = np.random.default_rng(0)
    lengths = np.clip(random.gamma(3.0, MEAN_TOKENS / 3, size=NUM_SENTENCES).astype(int), 3, 128)
    with (folder / "shard.npz").open("wb") as file:
        write_shard(file, [random.integers(0, 30_000, size=length).tolist() for length in lengths], num_truncated=0)
    merge_shards(folder, [folder / "shard.npz"])
    return folder


def _write_banks(folder: Path) -> list[Path]:
    folders = [folder / f"bank-{number}" for number in range(NUM_ENCODERS)]
    for number, one in enumerate(folders):
        (one / "shards").mkdir(parents=True)
        rows = np.random.default_rng(number).standard_normal((NUM_SENTENCES, WIDTH), dtype=np.float32).astype(np.float16)
        np.save(one / "shards" / "00000.npy", rows)
        facts = {"num_sentences": NUM_SENTENCES, "width": WIDTH, "dtype": "float16", "rows_per_shard": NUM_SENTENCES}
        (one / "bank.json").write_text(json.dumps(facts))
    return folders


if __name__ == "__main__":
    main()
