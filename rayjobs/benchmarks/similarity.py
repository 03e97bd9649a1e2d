"""How alike some sentences are under several encoders, drawn side by side:
`python -m rayjobs.benchmarks.similarity SENTENCES.tsv BERT=DIR SupMPN=DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from sentdist.errors import DataError, SentdistError


def main(
    sentences: Annotated[Path, typer.Argument(help="A line a sentence; with a tab, the topic stands before it.", show_default=False)],
    encoders: Annotated[list[str], typer.Argument(help="LABEL=CHECKPOINT: a folder, minilm-l6 or a hub id.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for similarity.svg, .png and .csv.")] = Path("."),
) -> None:
    """Draw the cosines of every two of the sentences, one map an encoder (SupMPN, Figure 2), with the figure's numbers beside it."""
    try:
        caption = draw(sentences, encoders, out)
    except SentdistError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(caption)


def draw(file: Path, encoders: list[str], out: Path) -> str:
    """Write the figure and its numbers into `out`; returns the caption. Raises DataError and EncoderError."""
    texts, topics = read_sentences(file)
    checkpoints = dict(_labelled(encoder) for encoder in encoders)

    from sentdist.learning.encoder.encode import encode
    from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
    from sentdist.report.figures import heat_map

    cosines = {}
    for label, checkpoint in checkpoints.items():
        embeddings = encode(SentenceEncoder.load(checkpoint), texts)
        units = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
        cosines[label] = units @ units.T
    rows = [f"{text:.44}  {number}" for number, text in enumerate(texts, start=1)]
    panels = {
        label: {(row, str(at + 1)): [float(one[place, at])] for place, row in enumerate(rows) for at in range(len(rows))}
        for label, one in cosines.items()
    }
    caption = f"Cosine similarity of {len(texts)} sentences under each encoder, on one scale."
    if topics is not None:
        is_same = np.array([[one == other for other in topics] for one in topics])
        pairs = np.triu(np.ones_like(is_same), 1).astype(bool)
        gaps = {label: one[is_same & pairs].mean() - one[~is_same & pairs].mean() for label, one in cosines.items()}
        caption += f" Mean cosine within topics less between topics: {', '.join(f'{label} {gap:.2f}' for label, gap in gaps.items())}."
    drawing = heat_map(panels, titles=("sentence", "other"), unit="cosine", name="similarity", caption=caption)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{drawing.name}.svg").write_text(drawing.svg)
    (out / f"{drawing.name}.png").write_bytes(drawing.png)
    (out / f"{drawing.name}.csv").write_text(drawing.table)
    return drawing.caption


def read_sentences(file: Path) -> tuple[list[str], list[str] | None]:
    """The sentences of a file, and their topics where every line has one. Raises DataError."""
    if not file.is_file():
        raise DataError(where=str(file), found="no such file", expected="a line a sentence", remedy="Correct the path.")
    lines = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    widths = {len(line) for line in lines}
    if widths - {1, 2} or len(widths) != 1:
        raise DataError(
            where=str(file),
            found=f"lines of {' and '.join(map(str, sorted(widths))) or 'no'} columns",
            expected="a sentence in every line, or a topic, a tab and a sentence in every line",
            remedy="Give all lines a topic, or none.",
        )
    return [line[-1].strip() for line in lines], [line[0].strip() for line in lines] if widths == {2} else None


def _labelled(encoder: str) -> tuple[str, str]:
    label, sign, checkpoint = encoder.partition("=")
    if not (label and sign and checkpoint):
        raise DataError(where="encoders", found=encoder, expected="LABEL=CHECKPOINT", remedy="Write for example MiniLM=minilm-l6.")
    return label, checkpoint


if __name__ == "__main__":
    typer.run(main)
