"""Our transfer scores beside those of SentEval's own classifier on the same embeddings:
`python -m rayjobs.benchmarks.transfer --data DIR`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from scipy.stats import ttest_ind

from rayjobs.benchmarks import out_folder
from rayjobs.benchmarks.interleaved import machine
from rayjobs.benchmarks.peers import packaged_encoder
from rayjobs.benchmarks.senteval_classifier import SEED, nested_accuracy, split_accuracy
from sentdist.evaluation.classification import pair_features
from sentdist.evaluation.linear_models import senteval_cross_validated, senteval_split
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.recipe.tasks import pinned_task
from sentdist.stages.resolve import FileResolver
from sentdist.tasks.cards import TASK_GROUPS
from sentdist.tasks.classification import ClassificationTask, LoadedClassification


@dataclass(kw_only=True)
class Row:
    """One task: accuracies × 100 of both classifiers by seed, and their mean processor seconds a seed."""

    task: str
    ours: dict[str, float] = field(default_factory=dict)
    theirs: dict[str, float] = field(default_factory=dict)
    ours_s: float = 0.0
    theirs_s: float = 0.0

    def add(self, seed: int, ours: tuple[float, float], theirs: tuple[float, float]) -> None:
        """Accuracy and seconds of one more seed."""
        count = len(self.ours)
        self.ours_s, self.theirs_s = ((mean * count + new[1]) / (count + 1) for mean, new in ((self.ours_s, ours), (self.theirs_s, theirs)))
        self.ours[str(seed)], self.theirs[str(seed)] = ours[0], theirs[0]


def main() -> None:
    """Score task after task with seed after seed, and write transfer.json and transfer.md after each;
    what stands there is not run again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="data root with transfer/*.parquet")
    parser.add_argument("--out", default="infra/benchmarks", type=out_folder)
    parser.add_argument("--tasks", nargs="*", default=list(TASK_GROUPS["transfer"]))
    parser.add_argument(
        "--seeds", nargs="*", type=int, default=[SEED], help="of folds, first weights and shuffles of both; SentEval has 1111"
    )
    parser.add_argument("--embeddings", help="folder that keeps embeddings between runs")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    kept = asked.out / "transfer.json"
    rows = {one["task"]: Row(**one) for one in json.loads(kept.read_text())["rows"]} if kept.is_file() else {}
    for seed in asked.seeds:
        for name in asked.tasks:
            row = rows.setdefault(name, Row(task=name))
            if str(seed) in row.ours:
                continue
            row.add(seed, *_compared(name, Path(asked.data), None if asked.embeddings is None else Path(asked.embeddings), seed))
            print(row, flush=True)
            ordered = [rows[one] for one in TASK_GROUPS["transfer"] if one in rows]
            kept.write_text(json.dumps({"machine": machine(asked.threads), "rows": [asdict(row) for row in ordered]}, indent=1))
            kept.with_suffix(".md").write_text(_markdown(ordered, asked.threads))


def _compared(name: str, data: Path, kept: Path | None, seed: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Accuracy and seconds of ours, and of theirs."""
    task = pinned_task(name, FileResolver(data_root=data))
    assert isinstance(task, ClassificationTask) and task.classifier == "senteval"
    loaded = task.load(data, {})
    embeddings = _embeddings(loaded, kept)
    features = pair_features(*np.split(embeddings, 2)) if len(task.columns) == 2 else embeddings
    return _timed(lambda: _ours(loaded, features, seed)), _timed(lambda: _by_senteval(loaded, features, seed))


def _ours(loaded: LoadedClassification, features_SD: np.ndarray, seed: int) -> float:
    task, labels, parts = loaded.task, loaded.rows.labels, loaded.parts
    if parts is None:
        return senteval_cross_validated(features_SD, labels, num_folds=task.num_folds, seed=seed, where=task.name).accuracy
    return senteval_split(features_SD, labels, **parts, num_folds=task.num_folds, seed=seed, where=task.name).accuracy


def _by_senteval(loaded: LoadedClassification, features_SD: np.ndarray, seed: int) -> float:
    task, rows = loaded.task, loaded.rows
    names = sorted(set(rows.labels))
    labels = [names.index(label) for label in rows.labels]
    if task.split is None:
        return nested_accuracy(features_SD, labels, seed=seed)
    train, test = np.asarray(rows.rows_of("train")), np.asarray(rows.rows_of(task.split))
    dev = None if task.dev is None else np.asarray(rows.rows_of(task.dev))
    return split_accuracy(features_SD, labels, train=train, test=test, dev=dev, seed=seed)


def _embeddings(loaded: LoadedClassification, kept: Path | None) -> np.ndarray:
    """(S, D) embeddings of a task's sentences by MiniLM."""
    path = None if kept is None else kept / f"{loaded.task.name}.npy"
    if path is not None and path.is_file():
        return np.load(path)
    encoder = SentenceEncoder.load(packaged_encoder()).eval()
    unique = list(dict.fromkeys(loaded.sentences))
    row = {sentence: number for number, sentence in enumerate(unique)}
    embeddings: np.ndarray = encode(encoder, unique)[[row[sentence] for sentence in loaded.sentences]]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, embeddings)
    return embeddings


def _timed(work: Callable[[], float]) -> tuple[float, float]:
    started = time.process_time()
    return work(), time.process_time() - started


def _markdown(rows: list[Row], threads: int) -> str:
    lines = [
        "# Transfer tasks beside SentEval's classifier",
        "",
        "MiniLM (mean pooling, fp32), the same embeddings for both. Theirs: `rayjobs/benchmarks/senteval_classifier.py`, SentEval's torch "
        "classifier reimplemented (Adam, batches of",
        "exactly 64, each model its own shuffles, early stopping, L2 grid). Ours: the same, folds side by side "
        "(`sentdist/evaluation/linear_models.py`). A seed is that of folds,",
        "first weights and shuffles; SentEval has 1111. Accuracy × 100, mean ± standard deviation over seeds; difference of the means "
        "with its 95 % interval (Welch).",
        "Processor seconds a seed: other work ran on the machine.",
        "",
        *(f"- {name}: {value}" for name, value in machine(threads).items()),
        "- command: `python -m rayjobs.benchmarks.transfer --data DIR --seeds 1111 1 2 … --tasks …`; seeds of each task in transfer.json",
        "",
        "| task | seeds | ours | SentEval's | difference | with seed 1111 | ours, s | SentEval's, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours, theirs = list(row.ours.values()), list(row.theirs.values())
        own = f"{row.ours['1111']:.2f} / {row.theirs['1111']:.2f}" if "1111" in row.ours else "–"
        lines.append(
            f"| {row.task} | {len(ours)} | {_spread(ours)} | {_spread(theirs)} | {_difference(ours, theirs)} | {own} | {row.ours_s:.0f} | "
            f"{row.theirs_s:.0f} |"
        )
    means = [float(np.mean([np.mean(list(getattr(row, name).values())) for row in rows])) for name in ("ours", "theirs")]
    seconds = [sum(getattr(row, name) for row in rows) for name in ("ours_s", "theirs_s")]
    lines.append(
        f"| mean, or sum of s | | {means[0]:.2f} | {means[1]:.2f} | {means[0] - means[1]:+.2f} | | {seconds[0]:.0f} | {seconds[1]:.0f} |"
    )
    return "\n".join([*lines, ""])


def _spread(values: list[float]) -> str:
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")


def _difference(ours: list[float], theirs: list[float]) -> str:
    text = f"{np.mean(ours) - np.mean(theirs):+.2f}"
    if len(ours) < 2:
        return text
    interval = ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return f"{text} [{interval.low:+.2f}, {interval.high:+.2f}]"


if __name__ == "__main__":
    main()
