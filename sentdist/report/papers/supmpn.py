"""Printed results of the SupMPN paper (Appl. Sci. 2022, 12(19) 9659, Tables 2, 3 and A1), and which of our cells reproduce which row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sentdist.objectives.info_nce import InfoNCE
from sentdist.objectives.supmpn import SupMPN
from sentdist.plan.corpora.groups import PRINTED_FRACTIONS, GroupedCorpus
from sentdist.report.printed import SIMCSE_SUPERVISED, STS_COLUMNS, TRANSFER_COLUMNS, PaperRow, PaperTable, PaperTables
from sentdist.report.score_rows import CellFacts

_PAPER = "SupMPN paper"
_SIMCSE, _SUPMPN = SIMCSE_SUPERVISED.label, "SupMPN"
_STS = "rayjobs/recipes/papers/supmpn_table2.yaml"
_TRANSFER = "rayjobs/recipes/papers/supmpn_table3.yaml"
_SINGLE_RUNS = "The paper gives one number per row and does not say from how many runs."

SUPMPN_TABLES: dict[str, PaperTable] = {
    "2": PaperTable(
        paper=_PAPER,
        number="2",
        base=_SIMCSE,
        recipes={_SIMCSE: _STS, _SUPMPN: _STS, "SupMPN-BERT-large": _STS},
        caption="Semantic textual similarity",
        columns=STS_COLUMNS,
        rows=(
            PaperRow(label="GloVe embeddings (avg.)", scores=(55.14, 70.66, 59.73, 68.25, 63.66, 58.02, 53.76, 61.32)),
            PaperRow(label="fastText embeddings", scores=(58.85, 58.83, 63.42, 69.05, 68.24, 68.26, 72.98, 65.66), printed={"Avg": 59.76}),
            PaperRow(label="BERT-base (first-last avg.)", scores=(39.70, 59.38, 49.67, 66.03, 66.19, 53.87, 62.06, 56.70)),
            PaperRow(label="BERT-base-flow-NLI", scores=(58.40, 67.10, 60.85, 75.16, 71.22, 68.66, 64.47, 66.55)),
            PaperRow(label="BERT-base-whitening-NLI", scores=(57.83, 66.90, 60.90, 75.08, 71.31, 68.24, 63.73, 66.28)),
            PaperRow(label="IS-BERT-base", scores=(56.77, 69.24, 61.21, 75.23, 70.16, 69.21, 64.25, 66.58)),
            PaperRow(label="CT-BERT-base", scores=(61.63, 76.80, 68.47, 77.50, 76.48, 74.31, 69.19, 72.05)),
            PaperRow(label="SG-BERT-base", scores=(66.84, 80.13, 71.23, 81.56, 77.17, 77.23, 68.16, 74.62)),
            PaperRow(label="Mirror-BERT-base", scores=(69.10, 81.10, 73.00, 81.90, 75.70, 78.00, 69.10, 75.41), printed={"Avg": 75.40}),
            PaperRow(label="SimCSE-unsup-BERT-base", scores=(68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23, 76.25), printed={"STS14": 80.91, "STS15": 78.56}),
            PaperRow(label="TSDAE-BERT-base", scores=(55.02, 67.40, 62.40, 74.30, 73.00, 66.00, 62.30, 65.77), printed={"Avg": 65.80}),
            PaperRow(label="ConSERT-BERT-base", scores=(70.53, 79.96, 74.85, 81.45, 76.72, 78.82, 77.53, 77.12)),
            PaperRow(label="ConSERT-BERT-large", scores=(73.26, 82.37, 77.73, 83.84, 78.75, 81.54, 78.64, 79.44)),
            PaperRow(label="RoBERTa-base (first-last avg.)", scores=(40.88, 58.74, 49.07, 65.63, 61.48, 58.55, 61.63, 56.57)),
            PaperRow(label="CLEAR-RoBERTa-base", scores=(49.00, 48.90, 57.40, 63.60, 65.60, 72.50, 75.60, 61.80), printed={"Avg": 61.08}),
            PaperRow(label="DeCLUTR-RoBERTa-base", scores=(52.41, 75.19, 65.52, 77.12, 78.63, 72.41, 68.62, 69.99)),
            PaperRow(label="InferSent-GloVe", scores=(52.86, 66.75, 62.15, 72.77, 66.87, 68.03, 65.65, 65.01)),
            PaperRow(label="Universal Sentence Encoder", scores=(64.49, 67.80, 64.61, 76.83, 73.18, 74.92, 76.69, 71.22)),
            PaperRow(label="SBERT-base", scores=(70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91, 74.86), printed={"Avg": 74.89}),
            PaperRow(label="SBERT-base-nli-v2", scores=(72.50, 84.80, 80.20, 84.80, 80.00, 83.90, 78.00, 80.60)),
            PaperRow(label="SBERT-base-flow", scores=(69.78, 77.27, 74.35, 82.01, 77.46, 79.12, 76.21, 76.60)),
            PaperRow(label="SBERT-base-whitening", scores=(69.65, 77.57, 74.66, 82.27, 78.39, 79.52, 76.91, 77.00)),
            PaperRow(label="CT-SBERT-base", scores=(74.84, 83.20, 78.07, 83.84, 77.93, 81.46, 76.42, 79.39)),
            PaperRow(label="SG-BERT-base, supervised", scores=(75.16, 81.27, 76.31, 84.71, 80.33, 81.46, 76.64, 79.41)),
            SIMCSE_SUPERVISED,
            PaperRow(label=_SUPMPN, scores=(75.96, 84.96, 80.61, 85.63, 81.69, 84.90, 80.72, 82.07)),
            PaperRow(label="SimCSE-sup-BERT-large", scores=(75.78, 86.33, 80.44, 86.06, 80.86, 84.87, 81.14, 82.21)),
            PaperRow(label="SupMPN-BERT-large", scores=(77.53, 86.50, 81.68, 85.99, 82.87, 86.09, 81.38, 83.15)),
        ),
        notes=(
            _SINGLE_RUNS,
            "The row of SimCSE is from its paper (one positive, one negative, batch 512); here both train on the same premises.",
            "The paper measures its large model's gain against a base model (SBERT): compare models of one size.",
            "Table 1, counts of premises: python -m rayjobs.benchmarks.premises --data DIR.",
            "Figure 2: python -m rayjobs.benchmarks.similarity rayjobs/recipes/papers/supmpn_figure2.tsv LABEL=FOLDER … on encoders of this table.",
        ),
    ),
    "3": PaperTable(
        paper=_PAPER,
        number="3",
        base=_SIMCSE,
        recipes={_SIMCSE: _TRANSFER, _SUPMPN: _TRANSFER, "SupMPN-BERT-large": _TRANSFER},
        caption="Transfer tasks",
        columns=TRANSFER_COLUMNS,
        rows=(
            PaperRow(label="GloVe embeddings (avg.)", scores=(77.25, 78.30, 91.17, 87.85, 80.18, 83.00, 72.87, 81.52)),
            PaperRow(label="Skip-thought", scores=(76.50, 80.10, 93.60, 87.10, 82.00, 92.20, 73.00, 83.50)),
            PaperRow(label="Avg. BERT embedding", scores=(78.66, 86.25, 94.37, 88.66, 84.40, 92.80, 69.54, 84.95), printed={"Avg": 84.94}),
            PaperRow(label="BERT-[CLS] embedding", scores=(78.68, 84.85, 94.21, 88.23, 84.13, 91.40, 71.13, 84.66)),
            PaperRow(label="IS-BERT-base", scores=(81.09, 87.18, 94.96, 88.75, 85.96, 88.64, 74.24, 85.83)),
            PaperRow(label="CT-BERT-base", scores=(79.84, 84.00, 94.10, 88.06, 82.43, 89.20, 73.80, 84.49)),
            PaperRow(label="SimCSE-unsup-BERT-base", scores=(81.18, 86.46, 94.45, 88.88, 85.50, 89.80, 74.43, 85.81), printed={"Avg": 85.51}),
            PaperRow(label="SimCSE-unsup-BERT-base-MLM", scores=(82.92, 87.23, 95.71, 88.73, 86.81, 87.01, 78.07, 86.64)),
            PaperRow(label="InferSent-GloVe", scores=(81.57, 86.54, 92.50, 90.38, 84.18, 88.20, 75.77, 85.59)),
            PaperRow(label="Universal Sentence Encoder", scores=(80.09, 85.19, 93.98, 86.70, 86.38, 93.20, 70.14, 85.10)),
            PaperRow(label="SBERT-base", scores=(83.64, 89.43, 94.39, 89.86, 88.96, 89.60, 76.00, 87.41)),
            PaperRow(label="SG-BERT-base", scores=(82.47, 87.42, 95.40, 88.92, 86.20, 91.60, 74.21, 86.60)),
            PaperRow(label=_SIMCSE, scores=(82.69, 89.25, 94.81, 89.59, 87.31, 88.40, 73.51, 86.51), printed={"SUBJ": 84.81}),
            PaperRow(label="SimCSE-sup-BERT-base-MLM", scores=(82.68, 88.88, 94.52, 89.82, 88.41, 87.60, 76.12, 86.86)),
            PaperRow(label=_SUPMPN, scores=(82.93, 89.26, 94.76, 90.21, 86.99, 88.20, 76.35, 86.96)),
            PaperRow(label="SupMPN-BERT-large", scores=(84.06, 90.25, 94.59, 90.26, 88.58, 91.00, 75.48, 87.75)),
        ),
        notes=(_SINGLE_RUNS, "Misprints in the SimCSE rows are corrected from their source."),
    ),
    "A1": PaperTable(
        paper=_PAPER,
        number="A1",
        base="None",
        recipes={"": "rayjobs/recipes/papers/supmpn_tablea1.yaml", "PP": "rayjobs/recipes/options/paraphrases.yaml"},
        caption="What takes the place of missing positives, BERT-base",
        columns=STS_COLUMNS,
        rows=(
            PaperRow(label="None", scores=(75.96, 84.96, 80.61, 85.63, 81.69, 84.90, 80.72, 82.07)),
            PaperRow(label="RD", scores=(75.82, 84.80, 80.37, 85.76, 81.98, 84.36, 80.08, 81.88)),
            PaperRow(label="SR", scores=(76.75, 83.82, 80.34, 86.04, 80.67, 83.88, 80.09, 81.66)),
            PaperRow(label="PP", scores=(76.10, 84.66, 79.81, 84.53, 81.65, 84.02, 81.18, 81.71)),
        ),
        notes=(_SINGLE_RUNS, "None: copies of the anchor; RD: words deleted; SR: synonyms; PP: paraphrases for about half."),
    ),
}  # fmt: skip

_REWORDED = {None: "None", "word_deletion": "RD", "synonyms": "SR", "paraphrases": "PP"}


@dataclass(frozen=True, kw_only=True)
class PremiseFacts:
    """How a cell learned from premises with their hypotheses.

    Args:
        has_groups: with several positives or negatives (supmpn), or one of each (info_nce).
        as_printed: temperature 0.05, all premises (not sub-SNLI), and no option of loss or corpus except the augmentation, with its
            printed share of words. The number of positives and negatives is in the row.
    """

    has_groups: bool
    as_printed: bool
    augmentation: str | None
    checkpoint: str = ""

    @property
    def main_row(self) -> str | None:
        """Row in Tables 2 and 3; None for SimCSE with a large encoder, which the paper takes from elsewhere."""
        if "large" not in self.checkpoint:
            return _SUPMPN if self.has_groups else _SIMCSE
        return "SupMPN-BERT-large" if self.has_groups else None


def supmpn_matches(facts: Mapping[str, PremiseFacts | None]) -> dict[str, dict[str, str]]:
    """Return table number -> our label -> printed row that it reproduces."""
    known = {label: found for label, found in facts.items() if found is not None and found.as_printed}
    main = {label: row for label, found in known.items() if found.augmentation is None and (row := found.main_row)}
    rewordings = {label: _REWORDED[found.augmentation] for label, found in known.items() if found.main_row == _SUPMPN}
    return {"2": main, "3": main, "A1": rewordings}


def premise_facts(cell: CellFacts) -> PremiseFacts | None:
    """Return how a cell learned from premises; None if it did not."""
    train, corpus = cell.train, cell.corpus
    if train is None or not isinstance(corpus, GroupedCorpus):
        return None
    match train.objective:
        case SupMPN(masked=masked, phi=phi, temperature=temperature):
            options = masked == "excluded" and not phi
        case InfoNCE(hard_negatives=options, temperature=temperature):
            pass
        case _:
            return None
    rewording = corpus.augmentation
    return PremiseFacts(
        has_groups=isinstance(train.objective, SupMPN),
        as_printed=options
        and temperature == 0.05
        and corpus.fill == "own_then_copies"
        and corpus.at_least == 1
        and (rewording is None or rewording.fraction == PRINTED_FRACTIONS[rewording.name]),
        augmentation=None if rewording is None else rewording.name,
        checkpoint=train.encoder.checkpoint,
    )


TABLES = PaperTables(
    title="SupMPN: Supervised Multiple Positives and Negatives (Applied Sciences 12(19) 9659)", tables=SUPMPN_TABLES, facts=premise_facts,
    matches=supmpn_matches,
)  # fmt: skip
