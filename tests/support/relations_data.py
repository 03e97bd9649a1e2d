"""Triples over the tiny data's scenes: a data root for relational embeddings."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sentdist.recipe.stage import Json
from tests.support.tiny_data import PLACES, SUBJECTS, VERBS, tiny_values, write_data

ENTAILMENT: dict[str, Json] = {"name": "entailment", "construction": "nli", "sources": [{"source": "nli/small"}]}
TWIN: dict[str, Json] = {"name": "twin", "sources": [{"source": "pairs/twins", "split": None}]}
CAPTION: dict[str, Json] = {"name": "same-caption", "construction": "captions", "sources": [{"source": "text/captions", "split": None}]}
ITSELF: dict[str, Json] = {
    "name": "same-sentence", "construction": "same", "sources": [{"source": "text/captions", "split": None}], "cap": 12
}  # fmt: skip


def write_relations_data(root: Path) -> Path:
    """The tiny data, and `nli/small` (premise, hypothesis, label), `pairs/twins` (sentence1, sentence2), `text/captions` (image,
    sentence)."""
    write_data(root)
    draw = random.Random(2)
    scenes = [(subject, verb, place) for subject in SUBJECTS for verb in VERBS for place in PLACES]
    draw.shuffle(scenes)
    nli = []
    for subject, verb, place in scenes[:32]:
        premise = f"{subject} {verb} {place} today"
        other = VERBS[(VERBS.index(verb) + 3) % len(VERBS)]
        for hypothesis, label in ((f"{subject} {verb}", "entailment"), (f"{subject} {other} {place}", "contradiction"), (place, "neutral")):
            nli.append({"split": "train", "premise": premise, "hypothesis": hypothesis, "label": label})
    twins = [{"sentence1": f"who {verb} {place}", "sentence2": f"which one {verb} {place}"} for verb in VERBS for place in PLACES]
    captions = [
        {"image": f"{number}.jpg", "sentence": sentence}
        for number, (subject, verb, place) in enumerate(scenes[:20])
        for sentence in (f"{subject} {verb}", f"{subject} {place}", f"{subject} that {verb} {place}")
    ]
    for name, rows in (("nli/small", nli), ("pairs/twins", twins), ("text/captions", captions)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), root / f"{name}.parquet")
    return root


def relations_values(encoder: Path, **changes: Json) -> dict[str, Json]:
    """A recipe of relations modelled, read in other ways, merged, alone, and with the regulators of entropy encoders made of them."""
    still: Json = {"attention_dropout": 0.0, "hidden_dropout": 0.0}
    merged: Json = {"name": "info_nce", "temperature": 0.05}
    scored: Json = {"relations": {"weights": {"entailment": 1.0, "twin": 0.5}, "curve": {"relation": "twin", "weights": [0.0, 0.5, 1.0]}}}
    one_way: Json = {"relations": {"weights": {"twin": 1.0}, "directions": "one", "normalized": False}}
    values: dict[str, Json] = {
        "name": "tiny-relations",
        "corpus": {"kind": "relations", "relations": [ENTAILMENT, TWIN, CAPTION, ITSELF], "held_out": 4},
        "corpora": {"alone": {"kind": "relations", "relations": [ENTAILMENT], "held_out": 4}},
        "training": {"batch_size": 8, "learning_rate": 1e-3, "max_length": 20, "unique_sentences": False},
        "evaluation": {"tasks": ["stsb"], "links": {}},
        "methods": {
            "base": {},
            "merged": {"objective": merged, "regularizers": still},
            "alone": {"objective": merged, "corpus": "alone", "regularizers": still},
            "rse": {"objective": {"name": "rse"}, "view": scored, "regularizers": still},
            "rse_plain": {"of": "rse"},
            "rse_one_way": {"of": "rse", "view": one_way},
            "entropy": {"objective": {"name": "rse", "phi": 0.01}, "regularizers": still, "select": False, "reported": False},
            "regulated": {
                "objective": {"name": "sum", "terms": [{"objective": {"name": "rse"}}, {"objective": {"name": "regulators"}}]},
                "bank": "entropy",
                "phis": [0.01],
                "view": scored,
                "regularizers": still,
            },
            "rcl_on_rse": {"objective": {"name": "info_nce"}, "start": "rse", "regularizers": still},
        },
        "baseline": "merged",
    }
    return tiny_values(encoder) | values | changes
