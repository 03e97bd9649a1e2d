"""Name the values of a cell that the printed tables of papers ask for, to tell which printed row it reproduces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sentdist.corpora.graded import GradedCorpus
from sentdist.corpora.relations import RelationalCorpus
from sentdist.corpora.rows import RowsCorpus
from sentdist.objectives.regression import Regression
from sentdist.recipe.objectives import terms_of
from sentdist.recipe.specs import View
from sentdist.recipe.stages import Train
from sentdist.report.score_rows import CellFacts


def cell_values(cell: CellFacts) -> dict[str, Any]:
    """Return the values by name; `start` has those of the training that the cell's training continues."""
    encoder = cell.untouched if cell.train is None else cell.train.encoder
    checkpoint = "" if encoder is None else encoder.checkpoint.lower()
    scoring = cell.view.relations
    return {
        "is_as_it_is": cell.is_as_it_is,
        "encoder": encoder,
        "checkpoint": checkpoint.rpartition("/")[2],
        "encoder_family": "RoBERTa" if "roberta" in checkpoint else "BERT",  # encoders that the papers do not have count as BERT-base
        "encoder_size": "large" if "large" in checkpoint else "base",
        "phis": cell.phis,
        "attention_dropout": cell.attention_dropout,
        "drophead": cell.drophead,
        "channels": _channels(cell.view),
        "relation_weights": None if scoring is None else {name: weight for name, weight in scoring.by_name.items() if weight},
        "combine": None if scoring is None else scoring.combine,
        **({} if cell.train is None else _of_training(cell.train)),
    }


def meets(values: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    """Return whether every value, named by a dotted path, is the one that a condition wants; what a cell lacks is None."""
    return all(_value(values, path) == wanted for path, wanted in conditions.items())


def regression_of(cell: CellFacts) -> Regression | None:
    """Return the regression that a cell was trained by; None if it was another objective, or nothing was trained."""
    objective = None if cell.train is None else cell.train.objective
    return objective if isinstance(objective, Regression) else None


def _value(values: Any, path: str) -> Any:
    for name in path.split("."):
        values = values.get(name) if isinstance(values, Mapping) else getattr(values, name, None)
    return list(values) if isinstance(values, tuple) else values


def _of_training(train: Train) -> dict[str, Any]:
    start = _of_training(train.start) if isinstance(train.start, Train) else None
    terms = {term.name: term for term in terms_of(train.objective)}
    return {
        "objective": train.objective,
        "term": terms,
        "terms": sorted(terms),
        "training": train.training,
        "start": start,
        "continues": train.start is not None,
        "ever_frozen": train.training.freeze_encoder or (start is not None and start["ever_frozen"]),
        "corpus": train.corpus,
        **_of_corpus(train.corpus),
    }


def _of_corpus(corpus: object) -> dict[str, Any]:
    match corpus:
        case RowsCorpus(columns=columns):  # "aa": each sentence with itself; "abc": triplets
            return {"columns": "".join("abc"[columns.index(column)] for column in columns)}
        case RelationalCorpus():
            return {"relations": sorted(corpus.relation_names)}
        case GradedCorpus(parts=parts):
            return {
                "sources": sorted({part.source for part in parts}),
                "scales": sorted({part.scale for part in parts}),
                "is_filtered": bool(corpus.without),
            }
    return {"is_filtered": False}


def _channels(view: View) -> str:
    """Which part of the embedding is scored."""
    if view.channels is None:
        return "whole"
    return "tags" if view.channels == "tags" or (view.channels != "words" and view.channels[0] == 0) else "words"
