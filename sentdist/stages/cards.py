"""Make the model card of a trained encoder: base, data, objective, settings, dev score."""

from __future__ import annotations

from collections.abc import Mapping

from sentdist.errors import brief
from sentdist.learning.encoder.write_folder import EncoderCard
from sentdist.recipe.objectives import Sum, terms_of
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train
from sentdist.tasks.kinds import TASK_KINDS
from sentdist.tasks.task import mean_of


def training_card(stage: Train, results: dict[str, Json], *, language: tuple[str, ...], base_prompts: Mapping[str, str]) -> EncoderCard:
    """Return the card of the encoder that a training stage made.

    Args:
        language: From the card of its base; left out for user files, whose language is unknown.
        base_prompts: Prompts of its base, by name.
    """
    settings: dict[str, str | int | float | bool | None] = {
        **{
            f"{term.name}.{name}" if isinstance(stage.objective, Sum) else f"objective.{name}": value
            for term in terms_of(stage.objective)
            for name, value in term.model_dump().items()
            if name != "name"
        },
        **stage.training.model_dump(),
        **{name: value for name, value in stage.regularizers.model_dump().items() if value is not None},
        "pooling": stage.encoder.pooling,
        "entropy encoders": len(stage.banks),
        "seed": stage.seed,
        "steps": results["num_steps"],  # type: ignore[dict-item]
        "stage": stage.key,
    }
    scores: dict[str, float] = {}
    best = results["best_dev_score"]
    if stage.selection is not None and isinstance(best, float):
        measure = mean_of([TASK_KINDS[task.kind].main for task in stage.selection.tasks])
        scores[f"{stage.selection.name} ({measure.title} × 100, chose the checkpoint)"] = round(best, 2)
    is_on_hub = stage.start is None and "/" in stage.encoder.checkpoint  # a folder is named by the last part of its path
    return EncoderCard(
        base_model=stage.encoder.checkpoint if stage.start is None else stage.start.label,
        base_revision=stage.encoder.revision if is_on_hub else None,
        is_on_hub=is_on_hub,
        data=stage.corpus.described,
        objective=" + ".join(term.title for term in terms_of(stage.objective)),
        hyperparameters=settings,
        scores=scores,
        prompts=_prompts(base_prompts),
        language=() if any(source.own is not None for source in stage.corpus.sources) else language,
    )


def _prompts(of_base: Mapping[str, str]) -> str:
    """Which prompts to use: none, since the encoder was trained and scored without the prompts of its base."""
    shown = ", ".join(f"{name} {brief(text)}" for name, text in of_base.items() if text)
    return f"none, in training and in use; those of the base model were left out: {shown}" if shown else ""
