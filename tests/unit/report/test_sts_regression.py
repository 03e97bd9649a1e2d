"""The STS regression paper's tables beside ours: which of our cells stands for which printed row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sentdist.plan.specs import EncoderSpec, View
from sentdist.plan.stages import Scores
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.report.papers.sts_regression import REGRESSION_TABLES, TABLES, RegressionFacts
from sentdist.report.printed import STS_COLUMNS
from sentdist.report.score_rows import CellFacts, ResultRow, TableRows
from sentdist.report.tables import ResultTable, build_table


def facts(loss: str, *, features: str = "uv_diff", goes_on: bool = False, is_filtered: bool = False) -> RegressionFacts:
    slope, threshold = (4.0 if goes_on else 2.0, 0.25) if loss == "smooth_k2" else (None, None)
    return RegressionFacts(
        loss=loss, boundary="left_mask", features=features, slope=slope, threshold=threshold, goes_on=goes_on, is_filtered=is_filtered
    )


def table_of(*labels: str) -> ResultTable:
    rows = [
        ResultRow(method=label, label=label, params={}, seed=0, scores=dict.fromkeys(STS_COLUMNS[1:-1], 60.0) | {"STS12": 70.0 + place})
        for place, label in enumerate(labels)
    ]
    return build_table(
        TableRows(title="t", rows=rows, columns=STS_COLUMNS[:-1], average=True, measure=TASK_KINDS["sts"].main), baseline=labels[0]
    )


def test_the_papers_averages_fit_its_cells() -> None:
    for table in REGRESSION_TABLES.values():
        for row in table.rows:
            assert len(row.scores) == len(table.columns)
            if len(row.scores) == 8:
                assert np.mean(row.scores[:7]) == pytest.approx(row.scores[7], abs=0.006), (table.number, row.label)


def test_losses_and_stages_find_their_rows() -> None:
    known = {
        "base": None, "ce": facts("cross_entropy"), "mse": facts("mse"), "k2": facts("smooth_k2"),
        "all": facts("smooth_k2", goes_on=True), "filtered": facts("smooth_k2", goes_on=True, is_filtered=True),
    }  # fmt: skip
    losses, stages = TABLES.beside_facts(table_of(*known), known)
    assert [(row.label, row.paper_label) for row in losses.rows] == [
        ("ce", "BERT Cross Entropy"), ("mse", "BERT MSE Loss"), ("k2", "BERT Smooth K2 Loss")
    ]  # fmt: skip
    assert losses.columns == STS_COLUMNS
    assert losses.rows[2].our_gain == pytest.approx((2.0, *[0.0] * 6, 2 / 7))
    assert [losses.rows[2].paper_gain[place] for place in (0, 5, 7)] == pytest.approx([2.38, 3.9, 3.02])
    assert [(row.label, row.paper_label) for row in stages.rows] == [
        ("k2", "BERT Smooth K2 Loss"), ("all", "Ours + STS-B and SICK-R train")
    ]  # fmt: skip


def test_the_encoder_tells_the_row() -> None:
    roberta = {"checkpoint": "FacebookAI/roberta-base"}
    known = {
        "k2": facts("smooth_k2"), "r_k2": replace(facts("smooth_k2"), slope=3.0, **roberta), "r_l1": replace(facts("l1"), **roberta),
        "all": facts("smooth_k2", goes_on=True), "r_all": replace(facts("smooth_k2", goes_on=True), slope=3.0, **roberta),
        "r_uv": replace(facts("smooth_k2", features="uv"), slope=3.0, **roberta),
    }  # fmt: skip
    found = TABLES.matches(known)
    assert found["2"] == {"k2": "BERT Smooth K2 Loss", "r_k2": "RoBERTa Smooth K2 Loss", "r_l1": "RoBERTa L1 Loss"}
    assert found["3"] == {
        "k2": "BERT Smooth K2 Loss", "all": "Ours + STS-B and SICK-R train", "r_all": "Ours + STS-B and SICK-R train, RoBERTa",
    }  # fmt: skip
    assert found["4"] == {
        "k2": "BERT Smooth K2 Loss, k = 2, x0 = 0.25", "r_k2": "RoBERTa Smooth K2 Loss, k = 3, x0 = 0.25",
        "all": "BERT Smooth K2 Loss, k = 4, x0 = 0.25 + STS-B and SICK-R train", "r_all": "RoBERTa Smooth K2 Loss, k = 3, x0 = 0.25 + STS-B and SICK-R train",
    }  # fmt: skip
    assert found["5"]["r_uv"] == "(u, v), RoBERTa"


def test_features_find_their_rows() -> None:
    known = {features: facts("smooth_k2", features=features) for features in ("uv", "diff", "uv_diff")}
    (found,) = TABLES.beside_facts(table_of(*known), known)
    assert {row.label: row.paper for row in found.rows} == {"uv": (53.30,), "diff": (54.84,), "uv_diff": (76.03,)}


def test_what_the_paper_set_otherwise_is_not_its_row() -> None:
    """Tables 2, 3 and 5 have the slopes and thresholds of its Table 1; all but Table 5 the whole head."""
    k2, second = facts("smooth_k2"), facts("smooth_k2", goes_on=True)
    others = {
        "steeper": replace(k2, slope=3.0), "narrower": replace(k2, threshold=0.2), "RoBERTa": replace(k2, checkpoint="roberta-base"),
        "second": replace(second, slope=3.5), "relu": replace(k2, loss="translated_relu"),
    }  # fmt: skip
    found = TABLES.matches(others)
    assert not found["2"] and not found["3"] and not found["5"]
    assert found["4"] == {
        "steeper": "BERT Smooth K2 Loss, k = 3, x0 = 0.25", "second": "BERT Smooth K2 Loss, k = 3.5, x0 = 0.25 + STS-B and SICK-R train",
        "relu": "BERT Translated ReLU, k = 2, x0 = 0.25",
    }  # fmt: skip
    heads = TABLES.matches({features: facts("smooth_k2", features=features) for features in ("uv", "diff")})
    assert heads["5"] and not heads["2"] and not heads["3"] and not heads["4"]


def test_a_grid_stands_beside_nothing() -> None:
    known = {f"cell {number}": facts("smooth_k2", goes_on=True) for number in range(3)}
    assert list(TABLES.beside_facts(table_of(*known), known)) == []


NOMIC = "nomic-ai/nomic-embed-text-v1"
HEAD = replace(facts("smooth_k2"), checkpoint=NOMIC, head_alone=True, sources=("nli/snli", "nli/mnli"), is_nli=True)
OURS = replace(
    facts("smooth_k2", goes_on=True, is_filtered=True), checkpoint=NOMIC, slope=3.0, threshold=0.2, start=HEAD, keeps_head=True,
    sources=("sts/stsb", "sts/sick"),
)  # fmt: skip


def untouched(view: dict[str, str] | None = None, **encoder: str | int) -> CellFacts:
    spec = EncoderSpec.model_validate({"checkpoint": NOMIC, "revision": "1"} | encoder)
    return CellFacts(scores=Scores(encoder=spec, tasks=(), view=View.model_validate(view or {})))


def test_nomic_as_it_is_and_head_first_are_the_repository_s_rows() -> None:
    known = {"base": TABLES.facts(untouched()), "head": HEAD, "ours": OURS}
    assert TABLES.matches(known)["EMNLP"] == {"base": "Nomic Embed Text v1", "ours": "Nomic Embed Text v1 + Ours"}
    (found,) = TABLES.beside_facts(table_of("base", "ours"), {label: known[label] for label in ("base", "ours")})
    assert found.rows[1].paper_gain[-1] == pytest.approx(82.83 - 81.52)


@pytest.mark.parametrize(
    "other",
    [
        {"checkpoint": "nomic-ai/nomic-embed-text-v1.5"}, {"checkpoint": "minilm-l6"}, {"pooling": "cls"}, {"initialization": "random"},
        {"layers": 6}, {"view": {"postprocess": "whiten"}},
    ],
)  # fmt: skip
def test_another_untouched_encoder_is_no_row(other: dict[str, object]) -> None:
    assert TABLES.matches({"base": TABLES.facts(untouched(**other))})["EMNLP"] == {}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other",
    [
        replace(OURS, checkpoint="nomic-ai/nomic-embed-text-v1.5"),
        replace(OURS, pooling="cls"),
        replace(OURS, is_pretrained=False),
        replace(OURS, is_filtered=False),
        replace(OURS, keeps_head=False),
        replace(OURS, head_alone=True),
        replace(OURS, slope=3.5),
        replace(OURS, threshold=0.25),
        replace(OURS, boundary="one_sided"),
        replace(OURS, sources=("sts/stsb",)),
        replace(OURS, start=None),
        replace(OURS, start=replace(HEAD, head_alone=False)),
        replace(OURS, start=replace(HEAD, slope=3.0)),
        replace(OURS, start=replace(HEAD, is_nli=False)),
        replace(OURS, start=replace(HEAD, features="uv")),
        replace(OURS, start=replace(HEAD, goes_on=True)),
    ],
)
def test_what_differs_from_the_repository_is_not_its_row(other: RegressionFacts) -> None:
    assert TABLES.matches({"other": other})["EMNLP"] == {}


def test_what_begins_with_the_head_alone_is_no_row_of_the_paper() -> None:
    """Its own tables train both together, and its second stage goes on from there."""
    unfiltered = replace(OURS, is_filtered=False, checkpoint="google-bert/bert-base-uncased", slope=4.0, threshold=0.25)
    found = TABLES.matches({"head": replace(HEAD, checkpoint="google-bert/bert-base-uncased"), "second": unfiltered})
    assert found == {"2": {}, "3": {}, "4": {}, "5": {}, "EMNLP": {}}
    together = TABLES.matches({"second": replace(unfiltered, start=replace(HEAD, head_alone=False))})
    assert together["3"] == {"second": "Ours + STS-B and SICK-R train"}
