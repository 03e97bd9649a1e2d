"""Figures of embeddings: spectra of singular values, a map of sentences in a plane, matrices of cosines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.ticker import FuncFormatter
from scipy.linalg import orthogonal_procrustes

from sentdist.errors import DataError, counted
from sentdist.files import drop_remedy, read_parquet
from sentdist.report.style import (
    FAINT,
    INK,
    MARKERS,
    MUTED,
    SEQUENTIAL,
    Drawing,
    SystemStyles,
    break_titles,
    canvas,
    check_drawable,
    house_style,
    legend_columns,
    quiet,
    save,
    styles_of,
)
from sentdist.store.record import Record
from sentdist.store.store import Artifact, ArtifactStore
from sentdist.store.sweep import SweepRecord, TrialRecord
from sentdist.text import PALETTE

SPECTRUM_FILE, SAMPLE_FILE = "cloud/spectrum.parquet", "cloud/sample.parquet"  # of a scores artifact
MAX_MAPS = 3
OTHER = "other"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """U sentences, the subset of the task that each is from, and their (U, D) embeddings."""

    sentences: Sequence[str]
    subsets: Sequence[str]
    embeddings: np.ndarray


def cloud_drawings(
    sweep: SweepRecord, store: ArtifactStore, records: Mapping[str, Record], *, systems: Sequence[str], styles: SystemStyles | None = None
) -> Iterator[Drawing]:
    """Yield spectra and map of the first of these cells; nothing for scores without kept embeddings."""
    trials = {cell: [one for one in sweep.trials if one.cell == cell and _has_cloud(one, records)] for cell in systems}
    known = {cell: found for cell, found in trials.items() if found}
    folders = {
        cell: [store.folder(Artifact(record=records[one.key], uri=""), SPECTRUM_FILE, SAMPLE_FILE) for one in found]
        for cell, found in known.items()
    }
    if not folders:
        return
    shown = list(folders)[: len(PALETTE)]
    yield singular_spectra({cell: [_spectrum(folder) for folder in folders[cell]] for cell in shown}, styles=styles)
    task = str(records[next(iter(known.values()))[0].key].results.get("geometry.task"))
    samples = {cell: _sample(folders[cell][0]) for cell in shown[:MAX_MAPS]}
    if len(set(samples[shown[0]].subsets)) > 1:  # dots of one colour show nothing
        yield embedding_map(samples, task=task)


def singular_spectra(spectra: Mapping[str, Sequence[np.ndarray]], *, styles: SystemStyles | None = None) -> Drawing:
    """Draw singular values in descending order, divided by the first, on a log scale: a line per system, mean over seeds.

    Embeddings that use all directions equally give a flat line; a steep fall shows dimensional collapse (Jing et al. 2022, arXiv
    2110.09348).

    Raises:
        DataError: the seeds of a system have different widths.
    """
    check_drawable(spectra, "singular spectra")
    records: list[list[object]] = []
    with house_style():
        figure, (axes,) = canvas(width=6.4, height=3.6)
        styles = styles or styles_of(spectra)
        for place, (system, seeds) in enumerate(spectra.items()):
            if len({np.shape(values) for values in seeds}) != 1:
                raise DataError(
                    where=f"spectra of {system}", found=f"{sorted({len(values) for values in seeds})} values",
                    expected="as many in every seed", remedy="Draw encoders of one width together.",
                )  # fmt: skip
            relative = np.stack([np.asarray(values, dtype=np.float64) / values[0] for values in seeds])
            means = np.maximum(relative.mean(axis=0), 1e-6)
            ranks = np.arange(1, len(means) + 1)
            label = f"{system} ({counted(len(seeds), 'seed')})" if len(seeds) > 1 else system
            every = max(1, len(means) // 8)
            axes.plot(
                ranks, means, color=styles[system].color, marker=styles[system].marker, markevery=(place * every // 7, every),
                markeredgecolor="white", label=label,
            )  # fmt: skip
            records += [[system, int(rank), float(mean), len(seeds)] for rank, mean in zip(ranks, means, strict=True)]
        axes.set_yscale("log")
        # The default formatter writes markup, which figures would show verbatim.
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: np.format_float_positional(value, trim="-")))
        axes.set_xlabel("rank of the singular value")
        axes.set_ylabel("singular value / largest")
        axes.margins(x=0.01)
        quiet(axes)
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper left", ncols=legend_columns(names, width_in=figure.get_figwidth()))
        caption = (
            "Singular values of the normalised embeddings, relative to the largest, mean over seeds; the flatter, the "
            "more directions are used."
        )
        return save(figure, name="spectra", caption=caption, header=["system", "rank", "relative value", "seeds"], records=records)


def embedding_map(samples: Mapping[str, Sample], *, task: str) -> Drawing:
    """Draw the same sentences for each system, a panel each: the plane of the first two principal components, rotated to match panel 1.

    Colours show the subsets of the task, largest first. On an HTML page the mouse shows the sentence of a point; the files have only its
    number, because data sets have their own licences.
    """
    check_drawable(samples, "embedding map")
    first = next(iter(samples.values()))
    parts = _parts(first.subsets)
    planes = {system: principal_plane(sample.embeddings) for system, sample in samples.items()}
    reference = planes[next(iter(samples))][0]
    records: list[list[object]] = []
    hover: dict[str, tuple[str, ...]] = {}
    with house_style():
        figure, panels = canvas(width=1.0 + 3.1 * len(samples), height=3.7, columns=len(samples))
        titles = []
        for number, (axes, (system, sample)) in enumerate(zip(panels, samples.items(), strict=True)):
            points, share = planes[system]
            points = points @ orthogonal_procrustes(points, reference)[0]
            kinds = [subset if subset in parts else OTHER for subset in sample.subsets]
            for place, part in enumerate(parts):
                rows = [row for row, kind in enumerate(kinds) if kind == part]
                color = MUTED if part == OTHER else PALETTE[place]
                group = f"map-{number}-{place}"
                axes.scatter(
                    points[rows, 0],
                    points[rows, 1], s=17, color=color, marker=MARKERS[place], edgecolors="white", linewidths=0.4, alpha=0.85, label=part,
                    gid=group,
                )  # fmt: skip
                hover[group] = tuple(f"{sample.sentences[row]} ({sample.subsets[row]})" for row in rows)
            records += [[system, row, kinds[row], float(x), float(y)] for row, (x, y) in enumerate(points)]
            titles.append(axes.set_title(system, color=INK, fontsize=9))
            axes.set_xlabel(f"{share:.0%} of the variance")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(True)
            axes.spines[:].set_color(FAINT)
            axes.set_aspect("equal", adjustable="datalim")
        handles, names = panels[0].get_legend_handles_labels()
        if len(names) > 1:
            columns = legend_columns(names, width_in=figure.get_figwidth(), at_most=6)
            figure.legend(handles, names, loc="outside upper left", ncols=columns)
        break_titles(figure, titles)
        caption = (
            f"{len(first.sentences)} sentences of {task} in the plane of the two directions along which each encoder's "
            "embeddings vary most."
        )
        header = ["system", "sentence", "part", "x", "y"]
        return save(figure, name="map", caption=caption, header=header, records=records, hover=hover)


def principal_plane(embeddings_UD: np.ndarray) -> tuple[np.ndarray, float]:
    """Return (U, 2) coordinates of normalised embeddings on their first two principal components, and the explained share of variance."""
    units = embeddings_UD.astype(np.float64)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    left, values, _ = np.linalg.svd(units - units.mean(axis=0), full_matrices=False)
    total = float((values**2).sum())
    return left[:, :2] * values[:2], float((values[:2] ** 2).sum()) / total if total else 0.0


def _parts(subsets: Sequence[str]) -> list[str]:
    """The subsets with their own colour, most frequent first; the others share `other`."""
    counts = {part: list(subsets).count(part) for part in dict.fromkeys(subsets)}
    ranked = sorted(counts, key=lambda part: -counts[part])
    return ranked if len(ranked) <= 6 else [*ranked[:5], OTHER]


def _has_cloud(trial: TrialRecord, records: Mapping[str, Record]) -> bool:
    return trial.key in records and {SPECTRUM_FILE, SAMPLE_FILE} <= records[trial.key].files.keys()


def _spectrum(folder: Path) -> np.ndarray:
    table = read_parquet(folder / SPECTRUM_FILE, columns=["singular_value"], remedy=drop_remedy(folder))
    values: np.ndarray = table["singular_value"].to_numpy()
    return values


def _sample(folder: Path) -> Sample:
    table = read_parquet(folder / SAMPLE_FILE, columns=["sentence", "subset", "embedding"], remedy=drop_remedy(folder))
    return Sample(
        sentences=table["sentence"].to_pylist(),
        subsets=table["subset"].to_pylist(),
        embeddings=np.array(table["embedding"].to_pylist(), dtype=np.float64),
    )


LONGEST_LABEL = 44  # characters of a sentence beside its row


def similarity_maps(embeddings: Mapping[str, np.ndarray], sentences: Sequence[str], *, topics: Sequence[str] | None = None) -> Drawing:
    """Draw the matrix of cosines of S sentences for each model, on one scale (as SupMPN, Figure 2).

    The scale runs from 0 (or the lowest cosine if negative) to 1. Up to 16 sentences, the cells show their numbers.

    Args:
        embeddings: model -> (S, D) in the order of the sentences; D may differ.
        topics: one per sentence. Lines separate them, and the caption gives the mean cosine within topics minus that between topics.

    Raises:
        DataError: shapes do not match, an embedding is zero or not finite, or there is nothing to draw.
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
            figure, name="similarity", caption=_caption(cosines, topics), header=["model", "sentence1", "sentence2", "cosine"],
            records=records,
        )  # fmt: skip


def _cosines(model: str, values: np.ndarray, num_sentences: int) -> np.ndarray:
    """(S, S) float64."""
    if values.ndim != 2 or len(values) != num_sentences:
        raise _unfit(model, f"embeddings of shape {tuple(values.shape)}", f"one row for each of {num_sentences} sentences")
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
    return DataError(where=where, found=found, expected=expected, remedy="Embed the same sentences, in the same order, with every model.")
