"""`sentdist train` and sentence-transformers on small files: `python -m rayjobs.benchmarks.small_files --work DIR [--data DIR]`.

Each seed draws other rows, and both sides train on the same file; held-out rows share no text with any of them. sentence-transformers takes
the values of its documentation: 1 epoch, batch 16, rate 2e-5, warm-up 0.1, multiple negatives without duplicates, or CoSENT. It also scores
all encoders. Differences are means over items and seeds; their 95 % intervals draw groups of connected rows, and seeds, again.
CPU: user and system seconds of a whole command, imports included.
"""

from __future__ import annotations

import csv
import json
import os
import random
import re
import resource
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from rayjobs.benchmarks import out_folder
from sentdist.text import markdown_table

Row = tuple[Any, ...]  # two texts; three; or two and a score
FAQ, PAIRS = ("question", "answer"), ("sentence1", "sentence2")
COLUMNS = {"stackfaq": FAQ, "squad": FAQ, "qqp": PAIRS, "stsb": (*PAIRS, "score"), "nli": ("anchor", "positive", "negative")}
REPEATS, TOP = 2000, 10
MAX_LENGTH = 128  # of both sides and of scores: on StackFAQ the untouched encoder has 84.28 at 128 tokens and 83.39 at its own 256


def rows_of(name: str, data: Path) -> Iterator[Row]:
    """The rows of a data set."""
    import pyarrow.parquet as pq

    def read(file: str, *columns: str) -> Iterator[Row]:
        return zip(*(pq.read_table(data / f"{file}.parquet")[column].to_pylist() for column in columns), strict=True)

    if name == "stackfaq":  # each query with the best answer of its thread
        answers = {row[0]: row[2] for row in read("retrieval/stackfaq_faqs", "thread_id", "answer_rank", "answer") if row[1] == 0}
        yield from ((query, answers[thread]) for query, thread in read("retrieval/stackfaq_queries", "query", "thread_id"))
    elif name == "qqp":
        yield from (row[:2] for row in read("pairs/qqp", "sentence1", "sentence2", "label") if row[2] == 1)
    elif name == "squad":
        yield from read("qa/squad_nqg", "question", "sentence")
    elif name == "stsb":
        yield from read("sts_raw/stsb", *COLUMNS["stsb"])
    else:
        yield from read("nli/triplets", "sent0", "sent1", "hard_neg")


def texts_of(row: Row) -> list[str]:
    return [cell for cell in row if isinstance(cell, str)]


def held_out(rows: Sequence[Row], num_test: int) -> tuple[list[Row], list[Row], np.ndarray]:
    """Rows to train on, rows to test on, and of each of these the number of its group: rows that are connected by texts, equal but for
    case and punctuation, stay on one side, and no group is more than a tenth of the test."""
    parents: dict[str, str] = {}

    def root(text: str) -> str:
        while parents.setdefault(text, text) != text:
            parents[text] = text = parents[parents[text]]
        return text

    folded = [[re.sub(r"\W+", " ", text.casefold()).strip() for text in texts_of(row)] for row in rows]
    for first, *others in folded:
        for other in others:
            parents[root(other)] = root(first)
    by_group: dict[str, list[Row]] = defaultdict(list)
    for row, texts in zip(rows, folded, strict=True):
        by_group[root(texts[0])].append(row)
    groups = list(by_group.values())
    random.Random(0).shuffle(groups)
    train, test, numbers = list[Row](), list[Row](), list[int]()
    for number, group in enumerate(groups):
        if len(test) < num_test and 10 * len(group) <= num_test:
            test, numbers = test + group, numbers + [number] * len(group)
        else:
            train += group
    return train, test, np.array(numbers)


def item_scores(folder: str, rows: Sequence[Row]) -> np.ndarray:
    """(I, 2) cosine and score of graded pairs; else (I,) reciprocal ranks of an anchor's best positive among all rows' texts."""
    from sentence_transformers import SentenceTransformer

    texts = list(dict.fromkeys(text for row in rows for text in texts_of(row)))
    at = {text: number for number, text in enumerate(texts)}
    encoder = SentenceTransformer(folder, device="cpu")
    encoder.max_seq_length = MAX_LENGTH
    vectors = encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False).astype(float)
    ids = np.array([[at[text] for text in texts_of(row)] for row in rows])
    if isinstance(rows[0][-1], float):
        return np.stack([(vectors[ids[:, 0]] * vectors[ids[:, 1]]).sum(axis=1), [row[-1] for row in rows]], axis=1)
    positives, is_found = defaultdict(set), np.isin(np.arange(len(texts)), ids[:, 1:])
    for anchor, positive in ids[:, :2]:
        positives[anchor].add(positive)
    found = []
    for anchor in ids[:, 0]:
        cosines = np.where(is_found & (np.arange(len(texts)) != anchor), vectors @ vectors[anchor], -np.inf)
        rank = 1 + int((cosines > max(cosines[one] for one in positives[anchor])).sum())
        found.append(1 / rank if rank <= TOP else 0.0)
    return np.array(found)


def total(items: np.ndarray) -> float:
    """Spearman × 100 of graded pairs, else MRR@10 × 100."""
    from scipy.stats import spearmanr

    return 100 * float(spearmanr(items[:, 0], items[:, 1])[0] if items.ndim == 2 else items.mean())


def difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], groups: np.ndarray) -> tuple[float, float, float]:
    """The mean over seeds of how much ours is above theirs, and its interval."""
    generator, members, found = np.random.default_rng(0), [np.flatnonzero(groups == one) for one in np.unique(groups)], []
    for _ in range(REPEATS):
        drawn = np.concatenate([members[one] for one in generator.integers(len(members), size=len(members))])
        seeds = generator.integers(len(ours), size=len(ours))
        found.append(np.mean([total(ours[seed][drawn]) - total(theirs[seed][drawn]) for seed in seeds]))
    mean = float(np.mean([total(one) - total(other) for one, other in zip(ours, theirs, strict=True)]))
    return mean, float(np.quantile(found, 0.025)), float(np.quantile(found, 0.975))


def peer(file: Path, start: str, folder: Path, seed: int) -> None:
    """sentence-transformers' trainer with the values of its documentation."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.losses import CoSENTLoss, MultipleNegativesRankingLoss

    with file.open(newline="", encoding="utf-8") as lines:
        rows = [{name: float(cell) if name == "score" else cell for name, cell in row.items()} for row in csv.DictReader(lines)]
    model, is_graded = SentenceTransformer(start, device="cpu"), "score" in rows[0]
    model.max_seq_length = MAX_LENGTH
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "run"), num_train_epochs=1, per_device_train_batch_size=16, learning_rate=2e-5, warmup_steps=0.1, seed=seed,
        batch_sampler="batch_sampler" if is_graded else "no_duplicates", use_cpu=True, save_strategy="no", report_to="none",
    )  # fmt: skip
    loss = CoSENTLoss(model) if is_graded else MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=Dataset.from_list(rows), loss=loss).train()
    model.save_pretrained(str(folder))


def trained(side: str, file: Path, start: str, folder: Path, seed: int, budget: str) -> tuple[str, float]:
    """The folder of the encoder that a side trains on a file, and the CPU seconds of its process and of its children."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["-m", "sentdist", side, str(file), "--out", str(folder), "--store", str(folder / "store")]
    if side == "tune":
        command += ["--budget", budget, "--local"]
    if side == "peer":
        command = [
            "-c",
            f"from rayjobs.benchmarks.small_files import *; peer(Path({str(file)!r}), {start!r}, Path({str(folder)!r}), {seed})",
        ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (folder / "log.txt").open("w") as lines:
        subprocess.run([sys.executable, *command], check=True, stdout=lines, stderr=subprocess.STDOUT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    encoder = folder if side == "peer" else next(one.parent for one in folder.glob("encoder-*/modules.json"))
    return str(encoder), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(
    work: Annotated[Path, typer.Option(parser=out_folder, help="For files, encoders and figures; what is there is not made again.")],
    data: Annotated[Path, typer.Option(envvar="SENTDIST_DATA", help="The data root.", show_default=False)],
    names: Annotated[str, typer.Option("--sets", help=", ".join(COLUMNS))] = "stackfaq,qqp,stsb,nli",
    most: Annotated[int, typer.Option("--rows", help="To train on, at most.")] = 1000,
    seeds: int = 3,
    tune: Annotated[str, typer.Option(help="Also `sentdist tune` with this budget, such as 8m.")] = "",
) -> None:
    """Train, score, and print a table; figures are also written as DIR/own_data.json."""
    from sentdist.learning.encoder.find_checkpoint import find_checkpoint

    os.environ |= {"HF_HUB_OFFLINE": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    start, sides = str(find_checkpoint("minilm-l6")), ["peer", "train", *(["tune"] if tune else [])]
    lines: list[list[str]] = []
    figures: dict[str, Any] = {}
    for name in names.split(","):
        train, test, groups = held_out([*rows_of(name, data)], 1000 if name == "stsb" else 500)
        size = min(most, 9 * len(train) // 10)
        items, seconds = {"untouched": [item_scores(start, test)] * seeds}, defaultdict[str, list[float]](list)
        for seed in range(seeds):
            file = work / f"{name}-{size}-{seed}.csv"
            with file.open("w", newline="", encoding="utf-8") as written:
                csv.writer(written).writerows([COLUMNS[name], *random.Random(seed).sample(train, size)])
            for side in sides:
                kept = work / f"{file.stem}-{side}.json"
                if not kept.exists():
                    encoder, cpu_s = trained(side, file, start, work / f"{file.stem}-{side}", seed, tune)
                    kept.write_text(json.dumps({"cpu_s": cpu_s, "items": item_scores(encoder, test).tolist()}))
                found = json.loads(kept.read_text())
                items[side] = [*items.get(side, []), np.array(found["items"])]
                seconds[side].append(found["cpu_s"])
        scores = {side: float(np.mean([total(one) for one in each])) for side, each in items.items()}
        for side in sides[1:]:
            gains = [difference(items[side], items[other], groups) for other in ("peer", "untouched")]
            of_time = float(np.sum(seconds[side]) / np.sum(seconds["peer"]))
            figures[f"{name} {side}"] = {"rows": size, "scores": scores, "over_peer_and_untouched": gains, "cpu_s": seconds}
            shown = [f"{gain:+.2f} [{low:.2f}, {high:.2f}]" for gain, low, high in gains]
            numbers = [f"{scores[one]:.2f}" for one in ("untouched", "peer", side)]
            lines.append(
                [f"{name}, {side}", str(size), str(len(test)), *numbers, *shown, f"{np.mean(seconds[side]):.0f}", f"{of_time:.2f}"]
            )
    (work / "own_data.json").write_text(json.dumps(figures, indent=1))
    heads = ["file", "rows", "held out", "untouched", "ST", "sentdist", "over ST", "over untouched", "CPU s", "of ST's"]
    typer.echo(markdown_table(heads, lines))


if __name__ == "__main__":
    typer.run(main)
