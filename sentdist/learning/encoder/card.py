"""What a saved encoder says about itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import EvalResult, ModelCard
from huggingface_hub.repocard import metadata_load
from yaml import YAMLError

from sentdist.table_text import markdown_table, markdown_text

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformerModelCardData

HOW_MADE = re.compile(r"(\(https://www\.SBERT\.net\) model) trained\.")  # what sentence-transformers write of a model without a base


@dataclass(frozen=True, kw_only=True)
class EncoderCard:
    """The facts of a model card.

    base_model: hub id or name of what training started from, and its revision. is_on_hub: the name is a hub id, which cards link to.
    data: names of the training tables. objective: what was minimized; None: nothing, the weights are those of the base model.
    hyperparameters: as they were set; None: not set, and not shown.
    scores: task -> value (Spearman × 100 and the like; the name says the metric).
    language: as the base model's own card says it.
    prompts: a sentence on what stands before sentences; "": nothing is said.
    """

    base_model: str
    base_revision: str | None = None
    is_on_hub: bool = False
    data: tuple[str, ...] = ()
    objective: str | None
    hyperparameters: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    language: tuple[str, ...] = ()
    license: str | None = None
    prompts: str = ""


def language_of(folder: Path) -> tuple[str, ...]:
    """The languages that the card in an encoder's folder says; none where it says none, or cannot be read: it is no part of an encoder."""
    try:
        said = (metadata_load(folder / "README.md") or {}).get("language")
    except (OSError, ValueError, YAMLError):
        return ()
    return tuple(one for one in (said if isinstance(said, list) else [said]) if isinstance(one, str))


def card_data(card: EncoderCard) -> SentenceTransformerModelCardData:
    """Fill sentence-transformers' own card data; nothing is looked up on the hub.

    `train_datasets` stays empty: version 6.2's template fails on entries that its own trainer did not make,
    so the data are in our own table.
    """
    from sentence_transformers import SentenceTransformerModelCardData  # seconds to import, and needed only when something is saved

    data = SentenceTransformerModelCardData(
        language=list(card.language),
        license=card.license,
        local_files_only=True,
        generate_widget_examples=False,
    )
    if card.is_on_hub and card.objective is not None:  # the field makes a link to the hub, behind "finetuned from"
        data.base_model = card.base_model
        data.base_model_revision = card.base_revision
    return data


def add_training_facts(folder: Path, card: EncoderCard) -> None:
    """Add objective, hyper-parameters and scores to the README.md that sentence-transformers wrote into `folder`."""
    readme = ModelCard.load(folder / "README.md")
    objective = card.objective or "none: the weights are those of the base model"
    base_model = card.base_model if card.base_revision is None else f"{card.base_model} at {card.base_revision}"
    rows = {"objective": objective, "base model": base_model, "data": ", ".join(card.data) or "none"}
    rows |= {"prompts": card.prompts} if card.prompts else {}
    rows |= {name: str(value) for name, value in card.hyperparameters.items() if value is not None}
    if card.objective is None:
        readme.text = HOW_MADE.sub(r"\1.", readme.text)
    sections = ["## How it was trained", _table(("setting", "value"), rows)]
    if card.scores:
        sections += ["## Scores", _table(("task", "score"), {name: f"{score:.2f}" for name, score in card.scores.items()})]
        readme.data.model_name = f"sentdist {objective}"
        readme.data.eval_results = [
            EvalResult(
                task_type="sentence-similarity",
                dataset_type="sentdist",
                dataset_name=task,
                metric_type="score",
                metric_value=float(score),
            )
            for task, score in card.scores.items()
        ]
    readme.text += "\n" + "\n\n".join(sections) + "\n"
    readme.save(folder / "README.md")


def _table(header: tuple[str, str], rows: Mapping[str, str]) -> str:
    return markdown_table(header, [(markdown_text(name), markdown_text(value)) for name, value in rows.items()], num_left=2)
