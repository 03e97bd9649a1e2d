"""The six relations of RSE on real text, where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.data.relations import RelationSource, join_relations
from sentdist.data.sources.hub import inspect_source, read_source
from sentdist.plan.tasks import TASK_GROUPS, TASKS

pytestmark = pytest.mark.data


def test_six_relations_of_real_text(data_root: Path) -> None:
    def source(name: str, construction: str, columns: tuple[str, ...], *files: str, only: tuple[str, str] | None = None) -> RelationSource:
        wanted = (*columns, *(only[:1] if only else ()))
        tables = tuple(read_source(file, data_root=data_root, columns=wanted) for file in files)
        return RelationSource(name=name, tables=tables, construction=construction, columns=columns, only=only, cap=50_000)

    two = ("sentence1", "sentence2")
    found = join_relations(
        [
            source("entailment", "nli", ("premise", "hypothesis", "label"), "nli/snli", "nli/mnli", "nli/new_protocols"),
            source("duplicate-question", "pairs", two, "pairs/qqp_duplicates"),
            source("paraphrase", "pairs", two, "pairs/wikisplit"),
            source("same-caption", "captions", ("image", "sentence"), "text/flickr30k_captions"),
            source("qa-entailment", "pairs", two, "pairs/qnli", only=("label", "entailment")),
            source("same-sentence", "same", ("sentence",), "text/wiki"),
        ]
    )
    assert found.counts["duplicate-question"].num_pairs == 85_291
    assert found.counts["same-sentence"].num_pairs == 250_000
    assert found.counts["qa-entailment"].num_pairs == 2_702
    assert (
        found.counts["same-caption"].num_pairs > 300_000
    )  # ten a photograph with five different captions; the paper counts 318k of 31,783
    assert found.counts["entailment"].num_pairs > 30_000
    assert found.table.num_rows == sum(count.num_kept for count in found.counts.values())
    positives, negatives = (found.table[name].to_pylist() for name in ("positive", "negative"))
    assert not any(positive == negative for positive, negative in zip(positives, negatives, strict=True))


def test_pooled_sets_are_all_splits_together(data_root: Path) -> None:
    for name in TASK_GROUPS["sts-pooled"]:
        card = TASKS[name]
        assert inspect_source(card.source, split=card.split, data_root=data_root).num_rows == card.num_items
    assert {name for name in TASK_GROUPS["sts-pooled"] if TASKS[name].split is None} >= {"stsb-pooled", "sickr-pooled"}
