"""The heat maps of how similar some sentences are to each other, one map a model, side by side (SupMPN, Figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sentdist.errors import DataError
from sentdist.report.style import INK, SEQUENTIAL, Drawing, canvas, house_style, save

LONGEST_LABEL = 44  # characters of a sentence beside its row


def similarity_maps(embeddings: Mapping[str, np.ndarray], sentences: Sequence[str], *, topics: Sequence[str] | None = None) -> Drawing:
    """Cosines of every two of S sentences under each model, on one scale.

    embeddings: model -> (S, D) in the order of the sentences; D may differ. topics: one a sentence;
    lines part them, and the caption gives for each model the mean cosine within topics less that between topics (SupMPN's picture:
    weather, sport, smartphone, food). The scale runs from 0, or the lowest cosine if that is below, to 1, so that models compare.
    Numbers stand in the cells of up to 16 sentences.
    Raises DataError where shapes do not fit, a sentence has no direction (zeros, NaN), or there is nothing to draw.
    """
    cosines = {model: _cosines(model, values, len(sentences)) for model, values in embeddings.items()}
    if not cosines or len(sentences) < 2:
        raise _unfit("similarity maps", f"{len(cosines)} models, {len(sentences)} sentences", "a model and two sentences")
    if topics is not None and len(topics) != len(sentences):
        raise _unfit("similarity maps", f"{len(topics)} topics", f"one for each of {len(sentences)} sentences")
    low = min(0.0, *(float(values.min()) for values in cosines.values()))
    count = len(sentences)
    side = max(2.6, 0.27 * count)
    with house_style():
        figure, axes = canvas(width=3.5 + side * len(cosines), height=side + 0.7, columns=len(cosines))
        for place, (one, (model, values)) in enumerate(zip(axes, cosines.items(), strict=True)):
            image = one.imshow(values, cmap=SEQUENTIAL, vmin=low, vmax=1)
            one.set_title(model)
            one.set_xticks(range(count), [str(number + 1) for number in range(count)])
            one.set_yticks(range(count), [_label(number, text) for number, text in enumerate(sentences)] if place == 0 else [])
            one.tick_params(length=0, labelsize=7, labelcolor=INK)
            one.spines[:].set_visible(False)
            for border in _borders(topics):
                one.axhline(border, color="white", linewidth=1.6)
                one.axvline(border, color="white", linewidth=1.6)
            if count <= 16:
                for row, column in np.ndindex(values.shape):
                    ink = "white" if (values[row, column] - low) / (1 - low) > 0.55 else INK
                    one.text(column, row, _short(float(values[row, column])), ha="center", va="center", fontsize=5, color=ink)
        bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02, aspect=24)
        bar.outline.set_visible(False)
        bar.set_label("cosine", fontsize=8)
        records = [
            [model, sentences[row], sentences[column], float(values[row, column])]
            for model, values in cosines.items()
            for row, column in np.ndindex(values.shape)
            if row < column
        ]
        return save(
            figure,
            name="similarity",
            caption=_caption(cosines, topics),
            header=["model", "sentence1", "sentence2", "cosine"],
            records=records,
        )


def _cosines(model: str, values: np.ndarray, num_sentences: int) -> np.ndarray:
    """(S, S) float64."""
    if values.ndim != 2 or len(values) != num_sentences:
        raise _unfit(model, f"embeddings of shape {tuple(values.shape)}", f"a row for each of {num_sentences} sentences")
    lengths = np.linalg.norm(values.astype(np.float64), axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise _unfit(model, f"no direction for sentence {int(np.argmin(np.nan_to_num(lengths, nan=0, posinf=0))) + 1}", "finite embeddings")
    units = values / lengths
    cosines: np.ndarray = np.clip(units @ units.T, -1, 1)
    return cosines


def _caption(cosines: Mapping[str, np.ndarray], topics: Sequence[str] | None) -> str:
    said = f"Cosine similarity of {len(next(iter(cosines.values())))} sentences under each model, on one scale."
    if topics is None or len(set(topics)) < 2:
        return said
    same = np.array([[one == other for other in topics] for one in topics])
    pairs = np.triu(np.ones_like(same), 1).astype(bool)
    if not (same & pairs).any():
        return said
    gaps = {model: values[same & pairs].mean() - values[~same & pairs].mean() for model, values in cosines.items()}
    return f"{said} Mean cosine within topics less between topics: {', '.join(f'{model} {gap:.2f}' for model, gap in gaps.items())}."


def _borders(topics: Sequence[str] | None) -> list[float]:
    return [] if topics is None else [place - 0.5 for place in range(1, len(topics)) if topics[place] != topics[place - 1]]


def _label(number: int, text: str) -> str:
    short = text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1].rstrip()}…"
    return f"{short}  {number + 1}"


def _short(value: float) -> str:
    rounded = round(value, 2) + 0.0  # no −.00
    return f"{rounded:.2f}".replace("-0.", "−.").removeprefix("0") if abs(rounded) < 1 else f"{rounded:.0f}"


def _unfit(where: str, found: str, expected: str) -> DataError:
    return DataError(where=where, found=found, expected=expected, remedy="Embed the same sentences, in their order, with every model.")
