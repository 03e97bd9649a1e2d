"""NLI labels and similarity scores over the tiny data's scenes: a data root for regression in two stages."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sentdist.recipe.stage import Json
from tests.support.tiny_data import PLACES, SUBJECTS, VERBS, tiny_values, write_data

NLI = {"columns": ["premise", "hypothesis", "label"], "scale": "nli"}


def write_graded(root: Path, *, num_rows: int = 64) -> Path:
    """The tiny data, and `nli/small` (premise, hypothesis, label), `sts/scores` (0 to 5) and `sts/sick` (1 to 5), all split train.

    Every fourth pair of `sts/scores` is one of `sts/stsb`'s test pairs, in upper case and the other way round.
    """
    write_data(root)
    draw = random.Random(1)
    labels = ("contradiction", "neutral", "entailment")
    nli, scores, sick = [], [], []
    tested = [row for row in pq.read_table(root / "sts/stsb.parquet").to_pylist() if row["split"] == "test"]
    for number in range(num_rows):
        subject, verb, place = draw.choice(SUBJECTS), draw.choice(VERBS), draw.choice(PLACES)
        label = labels[number % 3]
        other = {"contradiction": f"{subject} never {verb} {place}", "neutral": f"{subject} {verb} {draw.choice(PLACES)} tomorrow"}
        nli.append(
            {"split": "train", "premise": f"{subject} {verb} {place}", "hypothesis": other.get(label, f"{subject} {verb}"), "label": label}
        )
        same = number % 6
        pair = {
            "split": "train",
            "sentence1": f"{subject} {verb} {place} and {number % 7} one",
            "sentence2": f"{subject} {draw.choice(VERBS)} {place}",
        }
        scores.append(pair | {"score": same + 0.5 if same < 5 else 5.0})
        sick.append(pair | {"sentence1": f"two {pair['sentence1']}", "score": 1.0 + 0.4 * (number % 11)})
        if number % 4 == 0:
            seen = tested[number % len(tested)]
            scores[-1] |= {"sentence1": seen["sentence2"].upper(), "sentence2": seen["sentence1"]}
    for name, rows in (("nli/small", nli), ("sts/scores", scores), ("sts/sick", sick)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), root / f"{name}.parquet")
    return root


def regression_values(encoder: Path, **changes: Json) -> dict[str, Json]:
    """A recipe of both stages with every loss: stage 1 on NLI labels, stage 2 on scores, filtered and not,
    with a new head and with the old."""
    still: Json = {"attention_dropout": 0.0, "hidden_dropout": 0.0}
    parts: Json = [{"source": "sts/scores", "scale": "zero_to_five"}, {"source": "sts/sick", "scale": "one_to_five"}]
    smooth: dict[str, Json] = {"name": "regression", "loss": "smooth_k2", "slope": 2.0, "threshold": 0.25}
    values: dict[str, Json] = {
        "name": "tiny-regression",
        "corpus": {"kind": "graded", "parts": [{"source": "nli/small", **NLI}]},
        "corpora": {"scores": {"kind": "graded", "parts": parts}, "filtered": {"kind": "graded", "parts": parts, "without": ["stsb"]}},
        "training": {"batch_size": 8, "learning_rate": 1e-3, "layer_decay": 0.5, "max_length": 20, "unique_sentences": False},
        "methods": {
            "base": {},
            "cross_entropy": {"objective": {"name": "regression", "loss": "cross_entropy"}, "regularizers": still},
            "l1": {"objective": {"name": "regression", "loss": "l1"}, "regularizers": still},
            "stage_1": {"objective": smooth, "regularizers": still},
            "filtered": {"objective": smooth, "start": "stage_1", "corpus": "filtered", "regularizers": still},
            "unfiltered": {"objective": smooth, "start": "stage_1", "corpus": "scores", "regularizers": still},
            "longer": {"objective": smooth | {"keep_head": True}, "start": "stage_1", "regularizers": still},
        },
        "baseline": "l1",
    }
    return tiny_values(encoder) | values | changes
