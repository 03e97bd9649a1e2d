"""Tables as a person would bring them: a task of each kind that a recipe takes."""

from __future__ import annotations

import random
from pathlib import Path

from tests.support.tasks_data import write_table
from tests.support.tiny_data import PLACES, SUBJECTS, VERBS


def write_own(root: Path) -> None:
    """`my/KIND-dev` and `my/KIND-test` below a data root for each kind of task."""
    draw = random.Random(1)
    scenes = [f"{subject} {verb} {place}" for subject in SUBJECTS for verb in VERBS for place in PLACES]
    draw.shuffle(scenes)
    for number, side in enumerate(("dev", "test")):
        _write_tasks(root, side, scenes[number * 40 : number * 40 + 40])


def _write_tasks(root: Path, side: str, scenes: list[str]) -> None:
    others = [*scenes[1:], scenes[0]]
    both = list(enumerate(zip(scenes, others, strict=True)))
    labels = ["house" if "house" in scene else "elsewhere" for scene in scenes]
    rows: dict[str, list[dict[str, object]]] = {
        "sts": [{"sentence1": one, "sentence2": [one, other][n % 2], "score": float(n % 5)} for n, (one, other) in both],
        "pairs": [{"sentence1": one, "sentence2": [f"{one} today", other][n % 2], "label": 1 - n % 2} for n, (one, other) in both],
        "triplets": [{"sent0": one, "sent1": f"{one} today", "hard_neg": other} for _, (one, other) in both],
        "classification": [{"text": scene, "label": label} for scene, label in zip(scenes, labels, strict=True)],
        "clustering": [{"text": scene, "label": label} for scene, label in zip(scenes, labels, strict=True)],
        "reranking": [
            {"query_id": str(n), "query": one, "document_id": name, "document": text, "relevance": int(name == "right")}
            for n, (one, other) in both[:12]
            for name, text in (("wrong", other), ("right", f"{one} today"), ("far", PLACES[n % len(PLACES)]))
        ],
    }
    for kind, table in rows.items():
        write_table(root, f"my/{kind}-{side}", table)
    _write_questions(root, f"my/retrieval-{side}", scenes, answers=1)


def _write_questions(root: Path, name: str, scenes: list[str], *, answers: int) -> None:
    """Documents, a question for every first of `answers` of them, and judgements: each has the `answers` that follow."""
    asked = range(0, len(scenes), answers)
    write_table(root, f"{name}_docs", [{"doc_id": str(n), "text": f"{scene} today", "title": ""} for n, scene in enumerate(scenes)])
    write_table(root, f"{name}_queries", [{"query_id": str(n), "query": scenes[n]} for n in asked])
    judged = [{"query_id": str(n), "doc_id": str(n + more), "relevance": 1} for n in asked for more in range(answers)]
    write_table(root, f"{name}_qrels", judged)
