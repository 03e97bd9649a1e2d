"""Inference rows over the tiny data's scenes, one to three hypotheses of a kind a premise: a data root for SupMPN."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sentdist.recipe.stage import Json
from tests.support.tiny_data import PLACES, SUBJECTS, VERBS, tiny_values, write_data

PART: dict[str, Json] = {"source": "nli/inference"}
STILL: Json = {"attention_dropout": 0.0, "hidden_dropout": 0.0}


def write_inference(root: Path, *, num_premises: int = 48) -> Path:
    """The tiny data, and `nli/inference` (premise, hypothesis, label), split train; every sixth premise has no contradiction."""
    write_data(root)
    draw = random.Random(2)
    scenes = [(subject, verb, place) for subject in SUBJECTS for verb in VERBS for place in PLACES]
    draw.shuffle(scenes)
    rows = []
    for number, (subject, verb, place) in enumerate(scenes[:num_premises]):
        premise = f"{subject} {verb} {place} today"
        entailed = [f"{subject} {verb} {place}", f"one {subject.split()[-1]} {verb} {place} today", f"{subject} {verb} quickly {place}"]
        denied = [
            f"{subject} never {verb} {place}",
            f"two {subject.split()[-1]} {verb} not {place}",
            f"{subject} {verb} slowly {place} tomorrow",
        ]
        kinds = [("entailment", entailed, 1 + number % 3), ("neutral", [f"many {premise}"], 1)]
        kinds += [] if number % 6 == 5 else [("contradiction", denied, 1 + number % 2)]
        rows += [
            {"split": "train", "premise": premise, "hypothesis": hypothesis, "label": label}
            for label, hypotheses, count in kinds
            for hypothesis in hypotheses[:count]
        ]
    path = root / "nli/inference.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return root


def groups(num_positives: int, num_negatives: int, **settings: Json) -> dict[str, Json]:
    """A section of kind groups over the tiny inference rows."""
    return {"kind": "groups", "parts": [PART], "num_positives": num_positives, "num_negatives": num_negatives, **settings}


def supmpn_values(encoder: Path, **changes: Json) -> dict[str, Json]:
    """A recipe of SupMPN in both variants, supervised SimCSE on the same premises, entropy encoders of SupMPN,
    and SupMPN with their regulators."""
    supmpn: dict[str, Json] = {"name": "supmpn", "temperature": 0.05}
    values: dict[str, Json] = {
        "name": "tiny-supmpn",
        "corpus": groups(3, 2),
        "corpora": {"triplets": groups(1, 1), "deleted": groups(3, 2, augmentation={"name": "word_deletion"})},
        "methods": {
            "base": {},
            "simcse": {"objective": {"name": "info_nce", "temperature": 0.05}, "corpus": "triplets", "regularizers": STILL},
            "supmpn": {"objective": supmpn, "regularizers": STILL},
            "released": {"objective": supmpn | {"masked": "zero"}, "regularizers": STILL},
            "deleted": {"objective": supmpn, "corpus": "deleted", "regularizers": STILL},
            "entropy": {"objective": supmpn | {"phi": 0.01}, "regularizers": STILL, "select": False, "reported": False},
            "regulated": {
                "objective": {"name": "sum", "terms": [{"objective": supmpn}, {"weight": 0.5, "objective": {"name": "regulators"}}]},
                "bank": "entropy",
                "phis": [0.01, 0.02],
                "regularizers": STILL,
            },
        },
        "baseline": "simcse",
    }
    return tiny_values(encoder) | values | changes
