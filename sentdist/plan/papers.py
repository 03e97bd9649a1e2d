"""The papers whose printed tables can stand beside ours: what recipes and commands call them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper. name: what a recipe writes under `paper`. command: what `sentdist report --paper` calls it.
    tables: the module with its `TABLES`."""

    name: str
    command: str
    title: str
    tables: str


PAPERS: dict[str, Paper] = {
    paper.name: paper
    for paper in (
        Paper(
            name="rcl",
            command="rcl",
            title="Regularized Contrastive Learning of Semantic Search (arXiv 2209.13241)",
            tables="sentdist.report.paper_rcl",
        ),
        Paper(
            name="sts_regression",
            command="regression",
            title="Advancing Semantic Textual Similarity Modeling: a Regression Framework (arXiv 2406.05326)",
            tables="sentdist.report.paper_regression",
        ),
        Paper(
            name="rse",
            command="rse",
            title="Relational Sentence Embedding for Flexible Semantic Matching (arXiv 2212.08802)",
            tables="sentdist.report.paper_rse",
        ),
        Paper(
            name="supmpn",
            command="supmpn",
            title="SupMPN: Supervised Multiple Positives and Negatives (Applied Sciences 12(19) 9659)",
            tables="sentdist.report.paper_supmpn",
        ),
        Paper(
            name="auxiliary",
            command="auxiliary",
            title="SimCSE with auxiliary tasks (poster, Florida State University)",
            tables="sentdist.report.paper_auxiliary",
        ),
    )
}
