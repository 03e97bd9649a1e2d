"""Printed results of the poster on auxiliary tasks (FSU, table of STS scores), and which of our cells reproduce which row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sentdist.plan.objectives import terms_of, value_of
from sentdist.report.printed import STS_COLUMNS, PaperRow, PaperTable, PaperTables
from sentdist.report.score_rows import CellFacts

_PAPER = "poster on auxiliary tasks"
_RECIPE = "rayjobs/recipes/papers/auxiliary_table1.yaml"
_SIMCSE, _SENTENCE, _BOW, _POS = "SimCSE", "Our sentence", "Our BOW", "Our POS"
_SIMCSE_NOTE = "The row of SimCSE is from its paper (RoBERTa-base, unsupervised); the poster repeats its average."

AUXILIARY_TABLES: dict[str, PaperTable] = {
    "1": PaperTable(
        paper=_PAPER,
        number="1",
        base=_SIMCSE,
        recipes={"": _RECIPE},
        caption="Channels of the embedding on seven STS tasks, RoBERTa-base, 128 + 640 channels",
        columns=STS_COLUMNS,
        rows=(
            PaperRow(label=_SIMCSE, scores=(70.16, 81.77, 73.24, 81.36, 80.65, 80.22, 68.56, 76.57)),
            PaperRow(label=_BOW, scores=(69.16, 81.45, 72.69, 81.79, 79.98, 80.02, 67.25, 76.05)),
            PaperRow(label=_POS, scores=(67.70, 79.07, 71.32, 80.34, 78.97, 78.70, 66.44, 74.65)),
        ),
        notes=(
            _SIMCSE_NOTE,
            "Of the row of the whole embedding, our text of the poster has only STS12 70.39, the average (next table), and a stray 68.20, by elimination SICK-R.",
        ),
    ),
    "1 (averages)": PaperTable(
        paper=_PAPER,
        number="1 (averages)",
        base=_SIMCSE,
        recipes={"": _RECIPE},
        caption="Average STS score of the embedding and of its channels, RoBERTa-base",
        columns=("Avg",),
        rows=(
            PaperRow(label=_SIMCSE, scores=(76.57,)),
            PaperRow(label=_SENTENCE, scores=(77.21,)),
            PaperRow(label=_BOW, scores=(76.05,)),
            PaperRow(label=_POS, scores=(74.65,)),
        ),
        notes=(_SIMCSE_NOTE, "The poster gives one number per row and does not say from how many runs."),
    ),
}

_OF_PART = {"whole": _SENTENCE, "bow": _BOW, "pos": _POS}


@dataclass(frozen=True, kw_only=True)
class AuxiliaryFacts:
    """A cell in the poster's terms.

    Args:
        has_tasks: trained with tags and words; False: SimCSE alone.
        adversary: "none", "entropy" or "reversal".
        part: channels that are scored.
    """

    has_tasks: bool
    adversary: str = "none"
    part: Literal["whole", "pos", "bow"] = "whole"


def auxiliary_matches(facts: Mapping[str, AuxiliaryFacts | None]) -> dict[str, dict[str, str]]:
    """Return table number -> our label -> row of the poster that it reproduces."""
    matches = {
        label: _OF_PART[found.part] if found.has_tasks else _SIMCSE
        for label, found in facts.items()
        if found is not None and (found.adversary == "entropy" if found.has_tasks else found.part == "whole")
    }
    printed = {number: {row.label for row in paper.rows} for number, paper in AUXILIARY_TABLES.items()}
    return {number: {label: row for label, row in matches.items() if row in rows} for number, rows in printed.items()}


def auxiliary_facts(cell: CellFacts) -> AuxiliaryFacts | None:
    """Return a cell in the poster's terms; None if it is neither SimCSE nor has tasks."""
    if cell.train is None:
        return None
    channels = cell.view.channels
    part: Literal["whole", "pos", "bow"] = (
        "whole" if channels is None else "pos" if channels == "tags" or (channels != "words" and channels[0] == 0) else "bow"
    )
    terms = {term.name: term for term in terms_of(cell.train.objective)}
    if set(terms) == {"info_nce"}:
        return AuxiliaryFacts(has_tasks=False, part=part)
    if set(terms) != {"info_nce", "auxiliary"}:
        return None
    return AuxiliaryFacts(has_tasks=True, adversary=value_of(terms["auxiliary"], "adversary"), part=part)


TABLES = PaperTables(
    title="SimCSE with auxiliary tasks (poster, Florida State University)", tables=AUXILIARY_TABLES, facts=auxiliary_facts,
    matches=auxiliary_matches,
)  # fmt: skip
