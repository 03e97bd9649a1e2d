"""A data root and a recipe so small that a whole sweep runs in seconds: what stage and cluster tests share."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sentdist.recipe.recipe import recipe_from_values
from sentdist.recipe.stage import Json
from sentdist.recipe.unroll import Plan, unroll
from sentdist.stages.context import Context
from sentdist.stages.resolve import FileResolver
from sentdist.store.store import ArtifactStore

SUBJECTS = ["a man", "a woman", "a child", "a dog", "a cat", "the old man", "the young woman", "a small bird", "the big dog", "a red cat"]
VERBS = ["eats", "drinks", "plays", "runs", "sleeps", "sings", "reads", "walks"]
PLACES = ["in the house", "in the garden", "near the street", "under the old house", "on the street", "near the water"]


def write_data(root: Path, *, num_rows: int = 48, num_pairs: int = 40) -> Path:
    """Triplets `nli/triplets` and graded pairs `sts/stsb` (dev and test) below `root`."""
    draw = random.Random(0)
    scenes = [(subject, verb, place) for subject in SUBJECTS for verb in VERBS for place in PLACES]
    draw.shuffle(scenes)
    rows = [
        {
            "split": "train",
            "sent0": f"{subject} {verb} {place} today",
            "sent1": f"{subject} {verb} {place}",
            "hard_neg": f"{subject} {VERBS[(VERBS.index(verb) + 3) % len(VERBS)]} {place}",
        }
        for subject, verb, place in scenes[:num_rows]
    ]
    pairs = []
    for number in range(2 * num_pairs):
        one, other = draw.choice(scenes), draw.choice(scenes)
        mixed = [left if draw.random() < 0.5 else right for left, right in zip(one, other, strict=True)]
        score = 5.0 * sum(left == right for left, right in zip(one, mixed, strict=True)) / 3
        split = "dev" if number % 2 else "test"
        pairs.append({"subset": "scenes", "split": split, "sentence1": " ".join(one), "sentence2": " ".join(mixed), "score": score})
    for name, table in (("nli/triplets", rows), ("sts/stsb", pairs)):
        path = root / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(table), path)
    return root


def tiny_values(encoder: Path, **changes: Json) -> dict[str, Json]:
    """A recipe with every kind of method: untouched, Eq. 1, Eq. 2 and Eq. 3, dropout off; `changes` replace top-level fields."""
    still: Json = {"attention_dropout": 0.0, "hidden_dropout": 0.0}
    values: dict[str, Json] = {
        "name": "tiny",
        "encoder": {"checkpoint": str(encoder)},
        "corpus": {"source": "nli/triplets"},
        "training": {"batch_size": 8, "learning_rate": 1e-3, "max_length": 20},
        "selection": {"task": "stsb-dev", "every_fraction": 0.5},
        "evaluation": {"tasks": ["stsb"]},
        "methods": {
            "base": {},
            "fine_tuned": {"objective": {"name": "info_nce", "temperature": 0.05}, "regularizers": still},
            "entropy": {"objective": {"name": "entropy", "phi": 0.01}, "regularizers": still, "select": False, "reported": False},
            "rcl": {"objective": {"name": "rcl"}, "bank": "entropy", "phis": [0.01, 0.02], "regularizers": still},
        },
        "baseline": "fine_tuned",
    }
    return values | changes


def tiny_plan(values: dict[str, Json], *, data: Path, store: Path | str) -> tuple[Plan, Context]:
    """The plan of a recipe over the tiny data, and where it runs."""
    recipe = recipe_from_values(values, where="tiny")
    resolver = FileResolver(data_root=data)
    plan = unroll(recipe, resolver)
    context = Context(store=ArtifactStore(store), data_root=str(data), runtime=recipe.runtime, folders=resolver.folders)
    return plan, context
