"""What a trained encoder's model card says: start, data, objective, settings, dev score."""

from __future__ import annotations

from sentdist.learning.card import EncoderCard
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train

OBJECTIVE_TITLES = {
    "info_nce": "contrastive cross-entropy (RCL Eq. 1, arXiv 2209.13241)",
    "entropy": "contrastive cross-entropy with an entropy term (RCL Eq. 2, arXiv 2209.13241)",
    "rcl": "regularized contrastive learning (RCL Eq. 3, arXiv 2209.13241)",
}


def training_card(stage: Train, results: dict[str, Json]) -> EncoderCard:
    """The card of the encoder that a training stage made."""
    settings: dict[str, str | int | float | bool | None] = {
        **{f"objective.{name}": value for name, value in stage.objective.model_dump().items() if name != "name"},
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
        measure = "Spearman × 100" if stage.selection.task.kind == "sts" else "MAP × 100"
        scores[f"{stage.selection.task.name} ({measure}, chose the checkpoint)"] = round(best, 2)
    corpus = stage.corpus
    rows = f", {corpus.limit} rows" if corpus.limit else ""
    return EncoderCard(
        base_model=stage.encoder.checkpoint if stage.start is None else stage.start.label,
        base_revision=stage.encoder.revision if "/" in stage.encoder.checkpoint else None,
        data=(f"{corpus.source} ({corpus.split or 'all'}{rows}, {corpus.source_revision})",),
        objective=OBJECTIVE_TITLES[stage.objective.name],
        hyperparameters=settings,
        scores=scores,
    )
