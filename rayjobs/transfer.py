"""Our transfer scores beside those of SentEval's own classifier on the same embeddings: `python -m rayjobs.transfer --data DIR`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from rayjobs.benchmark import machine
from rayjobs.contestants import packaged_encoder
from rayjobs.senteval_classifier import nested_accuracy, split_accuracy
from sentdist.evaluation.classification import pair_features
from sentdist.learning.encode import encode
from sentdist.learning.encoder import SentenceEncoder
from sentdist.plan.chosen_tasks import pinned_task
from sentdist.plan.task_kinds import ClassificationTask
from sentdist.plan.tasks import TASK_GROUPS
from sentdist.stages.label_tasks import LabelledTask, load_classification
from sentdist.stages.resolve import FileResolver

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One task: accuracies × 100 of both classifiers and their processor seconds; encode_s: None where embeddings were kept from an earlier run."""

    task: str
    ours: float
    theirs: float
    ours_s: float
    theirs_s: float
    encode_s: float | None

    @property
    def difference(self) -> float:
        return self.ours - self.theirs


def main() -> None:
    """Score task after task, and write transfer.json and transfer.md after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="data root with transfer/*.parquet")
    parser.add_argument("--out", default="infra/benchmarks")
    parser.add_argument("--tasks", nargs="*", default=list(TASK_GROUPS["transfer"]))
    parser.add_argument("--embeddings", help="folder that keeps embeddings between runs")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    kept = Path(asked.out) / "transfer.json"
    earlier = json.loads(kept.read_text())["rows"] if kept.is_file() else []
    rows = {one["task"]: Row(**one) for one in earlier}
    for name in asked.tasks:
        rows[name] = _compared(name, Path(asked.data), None if asked.embeddings is None else Path(asked.embeddings))
        print(rows[name], flush=True)
        ordered = [rows[one] for one in TASK_GROUPS["transfer"] if one in rows]
        kept.write_text(json.dumps({"machine": machine(asked.threads), "rows": [asdict(row) for row in ordered]}, indent=1))
        kept.with_suffix(".md").write_text(_markdown(ordered, asked.threads))


def _compared(name: str, data: Path, kept: Path | None) -> Row:
    task = pinned_task(name, FileResolver(data_root=data))
    assert isinstance(task, ClassificationTask)
    loaded = load_classification(task, data)
    embeddings, encode_s = _embeddings(loaded, kept)
    score, ours_s = _timed(lambda: loaded.score(embeddings))
    theirs, theirs_s = _timed(lambda: _by_senteval(loaded, embeddings))
    assert score.main is not None
    return Row(task=name, ours=score.main, theirs=theirs, ours_s=ours_s, theirs_s=theirs_s, encode_s=encode_s)


def _by_senteval(loaded: LabelledTask, embeddings_SD: np.ndarray) -> float:
    task, rows = loaded.task, loaded.rows
    features = pair_features(*np.split(embeddings_SD, 2)) if len(task.columns) == 2 else embeddings_SD
    names = sorted(set(rows.labels))
    labels = [names.index(label) for label in rows.labels]
    if task.split is None:
        return nested_accuracy(features, labels)
    dev = None if task.dev is None else np.asarray(rows.rows_of(task.dev))
    return split_accuracy(features, labels, train=np.asarray(rows.rows_of("train")), test=np.asarray(rows.rows_of(task.split)), dev=dev)


def _embeddings(loaded: LabelledTask, kept: Path | None) -> tuple[np.ndarray, float | None]:
    """(S, D) embeddings of a task's sentences by MiniLM, and the processor seconds that they took."""
    path = None if kept is None else kept / f"{loaded.task.name}.npy"
    if path is not None and path.is_file():
        return np.load(path), None
    encoder = SentenceEncoder.load(packaged_encoder()).eval()
    unique = list(dict.fromkeys(loaded.sentences))
    row = {sentence: number for number, sentence in enumerate(unique)}
    found, seconds = _timed(lambda: encode(encoder, unique))
    embeddings = found[[row[sentence] for sentence in loaded.sentences]]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, embeddings)
    return embeddings, seconds


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = time.process_time()
    return work(), round(time.process_time() - started, 1)


def _markdown(rows: list[Row], threads: int) -> str:
    lines = [
        "# Transfer tasks beside SentEval's classifier",
        "",
        "MiniLM (mean pooling, fp32), the same embeddings for both. Theirs: `rayjobs/senteval_classifier.py`, SentEval's torch classifier written anew (Adam, batch 64,",
        "early stopping, L2 grid). Ours: scikit-learn's logistic regression to the end, same grid, same folds. Processor seconds, for other work ran on the machine.",
        "",
        *(f"- {name}: {value}" for name, value in machine(threads).items()),
        "- command: `python -m rayjobs.transfer --data DIR`",
        "",
        "| task | ours | SentEval's | difference | ours, s | SentEval's, s |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(f"| {row.task} | {row.ours:.2f} | {row.theirs:.2f} | {row.difference:+.2f} | {row.ours_s:.0f} | {row.theirs_s:.0f} |")
    means = [float(np.mean([getattr(row, name) for row in rows])) for name in ("ours", "theirs")]
    seconds = [sum(getattr(row, name) for row in rows) for name in ("ours_s", "theirs_s")]
    lines.append(
        f"| mean, or sum of s | {means[0]:.2f} | {means[1]:.2f} | {means[0] - means[1]:+.2f} | {seconds[0]:.0f} | {seconds[1]:.0f} |"
    )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
