"""The same values on the way that training takes: recipe, plan, stages, session. Small families of recipes, each on its own tiny data."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from sentdist.data.corpus import OpenedCorpus
from sentdist.learning.bank import FileBank
from sentdist.learning.engine import TorchEngine
from sentdist.learning.loop import StepReport
from sentdist.recipe.stage import Json, topological
from sentdist.recipe.stages import Train
from sentdist.recipe.unroll import Plan
from sentdist.stages.context import Context, folder_of
from sentdist.stages.local import build_here
from sentdist.stages.rungs import file_bank
from sentdist.stages.train import TrainSession
from tests.parity.wiring.declared import Rows
from tests.parity.wiring.reference_training import Run
from tests.support.graded_data import NLI, write_graded
from tests.support.groups_data import write_inference
from tests.support.mask_tokens import maskable_encoder
from tests.support.relations_data import ENTAILMENT, TWIN, write_relations_data
from tests.support.tiny_data import tiny_plan, write_data

STEPS = 3
STILL: Json = {"attention_dropout": 0.0, "hidden_dropout": 0.0}
TRAINING: dict[str, Json] = {
    "epochs": STEPS, "learning_rate": 3e-3, "warmup_fraction": 0.0, "max_length": 20, "unique_sentences": False, "clip_norm": 1e9,
}  # fmt: skip
SCORES: Json = [{"source": "sts/scores", "scale": "zero_to_five"}]
FAMILIES: dict[str, dict[str, Any]] = {
    "triplets": {"corpus": {"source": "nli/triplets", "limit": 8}, "rows": 8},
    "graded": {"corpus": {"kind": "graded", "parts": SCORES, "limit": 8}, "rows": 8},
    "nli": {"corpus": {"kind": "graded", "parts": [{"source": "nli/small", **NLI}], "limit": 8}, "rows": 8},
    "relations": {"corpus": {"kind": "relations", "relations": [ENTAILMENT, TWIN], "cap": 4}, "rows": 8},
    "groups": {
        "corpus": {"kind": "groups", "parts": [{"source": "nli/inference"}], "num_positives": 2, "num_negatives": 2, "limit": 5},
        "rows": 5,
    },
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where all families lie: a data root each, an encoder, one store."""

    root: Path
    encoder: Path
    deeper: Path  # another encoder
    store: Path
    kept: dict[str, Any] = field(default_factory=dict)  # what was trained before, by values

    @classmethod
    def make(cls, folder: Path) -> Place:
        for family, write in (
            ("triplets", write_data), ("graded", write_graded), ("nli", write_graded), ("relations", write_relations_data), ("groups", write_inference),
        ):  # fmt: skip
            (folder / family).mkdir(parents=True)
            write(folder / family)
            _drop_equal_pairs(folder / family / "sts/stsb.parquet")
        encoder = maskable_encoder(folder / "encoder", hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.25)
        return cls(root=folder, encoder=encoder, deeper=maskable_encoder(folder / "other", seed=5), store=folder / "store")


def _drop_equal_pairs(path: Path) -> None:
    """A sentence beside itself has cosine 1 but for rounding, which ranks such pairs by chance."""
    rows = {(row["split"], row["sentence1"], row["sentence2"]): row for row in pq.read_table(path).to_pylist()}
    pq.write_table(pa.Table.from_pylist([row for (_, one, other), row in rows.items() if one != other]), path)


def recipe_values(place: Place, family: str, changes: Mapping[str, Json]) -> dict[str, Json]:
    """The recipe of a family with the values at dotted paths replaced; `m` is the method that is looked at."""
    known = FAMILIES[family]
    values: dict[str, Any] = {
        "name": "wiring",
        "encoder": {"checkpoint": str(place.encoder)},
        "corpus": copy.deepcopy(known["corpus"]),
        "training": {**TRAINING, "batch_size": known["rows"]},
        "evaluation": {"tasks": ["stsb"]},
        "methods": {"m": {"objective": {"name": "info_nce"}, "regularizers": STILL}},
    }
    for path, value in changes.items():
        *parents, last = path.split(".")
        at = values
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = copy.deepcopy(value)
    return values


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A recipe planned, all inputs of one method's training built, its session made."""

    plan: Plan
    context: Context
    stage: Train
    session: TrainSession


def planned(place: Place, family: str, changes: Mapping[str, Json]) -> tuple[Plan, Context]:
    return tiny_plan(recipe_values(place, family, changes), data=place.root / family, store=place.store / family)


def stage_of(plan: Plan, method: str = "m") -> Train:
    stage = next(trial.scores.encoder for trial in plan.trials if trial.method == method)
    assert isinstance(stage, Train)
    return stage


def opened(place: Place, family: str, changes: Mapping[str, Json], *, method: str = "m") -> Opened:
    plan, context = planned(place, family, changes)
    stage = stage_of(plan, method)
    for needed in topological((stage,)):
        if needed.key != stage.key:
            build_here(needed, context)
    torch.manual_seed(11)
    session = TrainSession(stage, context, make_engine=TorchEngine, bank=file_bank(stage, context))
    return Opened(plan=plan, context=context, stage=stage, session=session)


def start_of(session: TrainSession) -> dict[str, torch.Tensor]:
    """Heads as they start: the objective's, and `pooling.…`."""
    weights = session.engine.weights()
    heads = {name.removeprefix("heads."): tensor for name, tensor in weights.items() if name.startswith("heads.")}
    return heads | {f"pooling.{name.removeprefix('encoder.head.')}": t for name, t in weights.items() if name.startswith("encoder.head.")}


def run(session: TrainSession) -> Run:
    """All steps of a session."""
    events = [event for event in session.events() if isinstance(event, StepReport)]
    weights = {name.removeprefix("encoder.model."): tensor for name, tensor in session.engine.weights().items()}
    return Run(tuple(e.loss for e in events), tuple(e.grad_norm for e in events), tuple(e.lr for e in events), weights)


def rows_of(stage: Train, context: Context) -> Rows:
    """What the corpus holds, as text; its banks by sentence."""
    corpus = OpenedCorpus.open(folder_of(stage.corpus, context))
    columns = tuple(tuple(corpus.sentences(ids)) for ids in corpus.ids)
    known = corpus.sentences(np.arange(corpus.num_sentences))
    rows = Rows(columns=columns, num_positives=stage.corpus.num_positives)
    if corpus.labels is not None and stage.corpus.labels is not None:
        rows = replace(
            rows, labels=torch.tensor(corpus.labels).double(), top=stage.corpus.labels.top, spacing=stage.corpus.labels.spacing or 1.0
        )
    if corpus.relations is not None:
        rows = replace(rows, relations=torch.tensor(corpus.relations).long())
    if stage.banks:
        tables = FileBank([folder_of(bank, context) for bank in stage.banks]).rows(np.arange(len(known))).double()
        rows = replace(rows, banks=tuple(dict(zip(known, table, strict=True)) for table in tables))
    return rows
