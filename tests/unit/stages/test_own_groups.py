"""A column `group` of one's own files, of whatever kind, says which test items belong together."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.data.checked_rows import read_candidates
from sentdist.errors import DataError
from sentdist.plan.task_names import OWN_KINDS
from sentdist.stages.tasks.load import load_task
from tests.support.tasks_data import stage_of, write_table

NUM, PER_GROUP = 24, 3
Row = dict[str, object]


def _rows(of_item: object) -> list[Row]:
    assert callable(of_item)
    return [{**row, "group": f"topic {item // PER_GROUP}"} for item in range(NUM) for row in of_item(item)]


TABLES = {
    "sts": lambda item: [{"sentence1": f"one {item}", "sentence2": f"other {item}", "score": item}],
    "pairs": lambda item: [{"sentence1": f"one {item}", "sentence2": f"other {item}", "label": item % 2}],
    "classification": lambda item: [{"text": f"text {item}", "label": item % 2}],
    "clustering": lambda item: [{"text": f"text {item}", "label": item % 2}],
    "triplets": lambda item: [{"sent0": f"one {item}", "sent1": f"near {item}", "hard_neg": f"far {item}"}],
    "reranking": lambda item: [
        {"query_id": f"q{item}", "query": f"query {item}", "document_id": place, "document": f"{place} {item}", "relevance": place}
        for place in range(2)
    ],
    "retrieval": lambda item: [{"query_id": f"q{item}", "query": f"query {item}"}],
}


@pytest.mark.parametrize("kind", sorted(OWN_KINDS))
def test_a_column_of_groups_counts_for_every_kind(kind: str, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    write_table(tmp_path, "my/data_queries" if kind == "retrieval" else "my/data", _rows(TABLES[kind]))
    if kind == "retrieval":
        write_table(tmp_path, "my/data_docs", [{"doc_id": f"d{item}", "text": f"answer {item}", "title": ""} for item in range(NUM)])
        write_table(tmp_path, "my/data_qrels", [{"query_id": f"q{item}", "doc_id": f"d{item}", "relevance": 1} for item in range(NUM)])
    (task,) = stage_of(tiny_encoder_dir, (f"{kind}=my/data",), tmp_path)[0].tasks
    groups = load_task(task, str(tmp_path)).texts().groups().tolist()
    assert len(groups) == NUM and len(set(groups)) == NUM // PER_GROUP
    assert all(len(set(groups[start : start + PER_GROUP])) == 1 for start in range(0, NUM, PER_GROUP))


def test_a_query_of_two_groups_is_refused(tmp_path: Path) -> None:
    rows = _rows(TABLES["reranking"])
    rows[1]["group"] = None
    write_table(tmp_path, "my/data", rows)
    with pytest.raises(DataError, match="query q0 in groups topic 0 and none; expected one group for each query_id"):
        read_candidates("my/data", data_root=tmp_path)
