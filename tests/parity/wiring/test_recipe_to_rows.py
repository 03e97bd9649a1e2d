"""Values that change what a corpus holds: rows, labels, groups, relations and folds are those that the recipe asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from sentdist.data.corpus import OpenedCorpus
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train, chosen_and_scored
from sentdist.plan.task_kinds import ScoredTask
from sentdist.stages.context import Context, folder_of
from sentdist.stages.local import build_here
from sentdist.stages.tasks.load import load_task
from sentdist.stages.tasks.retrieval import LoadedRetrieval
from tests.parity.wiring.fields import covers
from tests.parity.wiring.product import STILL, Place, planned, recipe_values
from tests.parity.wiring.reference import Student
from tests.parity.wiring.training_cases import O
from tests.support.building import run_local
from tests.support.graded_data import NLI
from tests.support.relations_data import CAPTION, ENTAILMENT, ITSELF, TWIN
from tests.support.tasks_data import write_table

pytestmark = pytest.mark.parity
Row = tuple[str, ...]


def built(place: Place, family: str, corpus: Json, **changes: Json) -> tuple[list[Row], OpenedCorpus, CorpusStage]:
    """The rows of a corpus as text."""
    values: dict[str, Json] = {
        "corpus": corpus,
        "training.batch_size": 2,
        **{name.replace("_at_", "."): value for name, value in changes.items()},
    }
    plan, context = planned(place, family, values)
    stage = plan.trials[0].scores.encoder
    assert isinstance(stage, Train)
    build_here(stage.corpus, context)
    corpus_ = OpenedCorpus.open(folder_of(stage.corpus, context))
    columns = [corpus_.sentences(ids) for ids in corpus_.ids]
    return list(zip(*columns, strict=True)), corpus_, stage.corpus


def table(place: Place, family: str, name: str) -> list[dict[str, Any]]:
    return pq.read_table(place.root / family / f"{name}.parquet").to_pylist()


@covers(
    "RowsCorpus.source", "RowsCorpus.split", "RowsCorpus.columns", "RowsCorpus.limit", "RowsCorpus.limit_seed", "RowsCorpus.add_reversed", "Recipe.corpus",
    "Recipe.corpora", "Method.corpus", "Train.corpus",
)  # fmt: skip
def test_rows_of_a_source(place: Place) -> None:
    train = table(place, "triplets", "nli/triplets")
    write_table(place.root / "triplets", "my/split", [{**row, "split": ("train", "other")[n % 2]} for n, row in enumerate(train)])
    whole: list[Row] = [(row["sent0"], row["sent1"], row["hard_neg"]) for row in train]

    def rows(**corpus: Json) -> list[Row]:
        return built(place, "triplets", {"source": "nli/triplets", **corpus})[0]

    assert rows() == whole
    assert rows(columns=["sent1", "hard_neg"]) == [row[1:] for row in whole]
    assert rows(source="my/split", split="other") == whole[1::2] and rows(source="my/split", split=None) == whole
    some, others = rows(limit=12), rows(limit=12, limit_seed=1)
    assert len(some) == len(others) == 12 and set(some) < set(whole) and some != others and sorted(some, key=whole.index) == some
    assert rows(add_reversed=True) == [*whole, *((b, a, c) for a, b, c in whole)]
    named = recipe_values(place, "triplets", {"corpora.short": {"source": "nli/triplets", "limit": 3}, "methods.m.corpus": "short"})
    assert named["corpus"] != named["corpora"]["short"]
    plan, _ = planned(
        place, "triplets", {"corpora.short": {"source": "nli/triplets", "limit": 3}, "methods.m.corpus": "short", "training.batch_size": 2}
    )
    assert plan.trials[0].scores.encoder.corpus.limit == 3


@covers(
    "GradedCorpus.parts", "GradedCorpus.rounding", "GradedCorpus.spacing", "GradedCorpus.without", "GradedCorpus.limit",
    "GradedCorpus.limit_seed", "GradedPart.source", "GradedPart.split", "GradedPart.columns", "GradedPart.scale",
)  # fmt: skip
def test_graded_pairs(place: Place) -> None:
    scores, sick, nli = (table(place, "graded", name) for name in ("sts/scores", "sts/sick", "nli/small"))
    part: dict[str, Json] = {"source": "sts/scores", "scale": "zero_to_five"}
    objective: dict[str, Json] = {f"{O.replace('.', '_at_')}": {"name": "regression", "loss": "mse"}}

    def rows(*parts: Json, **corpus: Json) -> list[tuple[str, str, float]]:
        found, opened, _ = built(place, "graded", {"kind": "graded", "parts": list(parts), **corpus}, **objective)
        assert opened.labels is not None
        return [(*row, round(float(label), 6)) for row, label in zip(found, opened.labels, strict=True)]

    def said(given: list[dict[str, Any]], change: Any, *names: str) -> list[tuple[str, str, float]]:
        one, other, label = names or ("sentence1", "sentence2", "score")
        return list(dict.fromkeys((row[one], row[other], round(float(change(row[label])), 6)) for row in given))

    rules = {"half_even": round, "half_up": lambda y: int(y + 0.5), "truncate": int, "none": float}
    for rounding, rule in rules.items():
        assert rows(part, rounding=rounding) == said(scores, rule), rounding
    assert rows(part, spacing=0.5) == said(scores, lambda y: round(2 * y) / 2)
    from_sick = [round(1.25 * (row["score"] - 1), 9) for row in sick]
    assert rows({"source": "sts/sick", "scale": "one_to_five"}, rounding="none") == said(
        [{**row, "score": score} for row, score in zip(sick, from_sick, strict=True)], float
    )
    words = {"contradiction": 0.0, "neutral": 1.0, "entailment": 2.0}
    assert rows({"source": "nli/small", **NLI}) == said(nli, words.get, "premise", "hypothesis", "label")
    backwards: Json = {"source": "nli/small", "scale": "nli", "columns": ["hypothesis", "premise", "label"]}
    assert rows(backwards) == said(nli, words.get, "hypothesis", "premise", "label")
    both = rows(part, {"source": "sts/sick", "scale": "one_to_five"})
    assert both == said([*scores, *({**row, "score": score} for row, score in zip(sick, from_sick, strict=True))], round)
    stsb = table(place, "graded", "sts/stsb")
    for left_out, splits in ((["stsb"], {"test"}), (["stsb-dev", "stsb"], {"dev", "test"}), (["stsb", "stsb-dev"], {"dev", "test"})):
        tested = {frozenset((row["sentence1"].lower(), row["sentence2"].lower())) for row in stsb if row["split"] in splits}
        kept = [row for row in said(scores, round) if frozenset((row[0].lower(), row[1].lower())) not in tested]
        assert rows(part, without=left_out) == kept and len(kept) < len(said(scores, round)), left_out
    some, others = rows(part, limit=9), rows(part, limit=9, limit_seed=4)
    assert len(some) == len(others) == 9 and some != others and set(some) < set(said(scores, round))
    write_table(place.root / "graded", "my/scores", [{**row, "split": ("train", "other")[n % 2]} for n, row in enumerate(scores)])
    assert rows({**part, "source": "my/scores", "split": "other"}) == said(scores[1::2], round)


@covers(
    "GroupedCorpus.parts", "GroupedCorpus.num_positives", "GroupedCorpus.num_negatives", "GroupedCorpus.at_least", "GroupedCorpus.fill",
    "GroupedCorpus.augmentation", "GroupedCorpus.seed", "GroupedCorpus.limit", "GroupedCorpus.limit_seed", "GroupPart.source", "GroupPart.split",
    "GroupPart.columns", "GroupPart.labels", "Augmentation.name", "Augmentation.fraction",
)  # fmt: skip
def test_groups(place: Place) -> None:
    source = table(place, "groups", "nli/inference")
    of: dict[str, dict[str, list[str]]] = {label: {} for label in ("entailment", "neutral", "contradiction")}
    for row in source:
        of[row["label"]].setdefault(row["premise"], []).append(row["hypothesis"])
    yes, no = of["entailment"], of["contradiction"]

    def rows(part: Mapping[str, Json] | None = None, **corpus: Json) -> list[Row]:
        sizes: dict[str, Json] = {"num_positives": 2, "num_negatives": 2}
        whole: Json = {"kind": "groups", "parts": [{"source": "nli/inference", **(part or {})}], **sizes, **corpus}
        return built(place, "groups", whole, **{O.replace(".", "_at_"): {"name": "supmpn"}})[0]

    def premises(least: int) -> list[str]:
        return [one for one in dict.fromkeys(row["premise"] for row in source) if min(len(yes.get(one, ())), len(no.get(one, ()))) >= least]

    for positives, negatives, least in ((2, 2, 1), (3, 1, 1), (1, 4, 1), (2, 2, 2)):
        found = rows(num_positives=positives, num_negatives=negatives, at_least=least)
        assert [row[0] for row in found] == premises(least) and {len(row) for row in found} == {1 + positives + negatives}
        for anchor, *others in found:
            own, against = others[:positives], others[positives:]
            held = min(positives, len(yes[anchor]))
            assert set(own[:held]) <= set(yes[anchor]) and own[held:] == [anchor] * (positives - held)
            assert len(set(against) & set(no[anchor])) == min(negatives, len(no[anchor])) and not set(against) & {anchor, *yes[anchor]}
    copied = rows(fill="copies")
    assert all(row[1:3] == (row[0], row[0]) for row in copied if len(yes[row[0]]) < 2) and copied != rows()
    assert rows(seed=1) != rows() and [row[0] for row in rows(seed=1)] == [row[0] for row in rows()]
    some, others = rows(limit=6), rows(limit=6, limit_seed=2)
    assert (
        len(some) == 6 and {row[0] for row in some} < {row[0] for row in rows()} and {row[0] for row in some} != {row[0] for row in others}
    )
    for fraction in (0.3, 0.9):
        deleted = rows(num_positives=3, augmentation={"name": "word_deletion", "fraction": fraction})
        made = [(row, word) for row in deleted for word in row[1 + len(yes[row[0]]) : 4]]
        shares = [
            1 - len(text.split()) / min(len(one.split()) for one in yes[row[0]] if set(text.split()) <= set(one.split()))
            for row, text in made
        ]
        assert made and np.mean(shares) == pytest.approx(fraction, abs=0.2)
    swapped = rows({"labels": ["contradiction", "entailment"]})
    assert all(set(row[1:2]) <= set(no[row[0]]) for row in swapped)
    upside = rows({"columns": ["hypothesis", "premise", "label"]}, num_negatives=1) if _can_turn(source) else None
    assert upside is None or {row[0] for row in upside} <= {row["hypothesis"] for row in source}
    write_table(place.root / "groups", "my/inference", [{**row, "split": "other"} for row in source])
    assert rows({"source": "my/inference", "split": "other"}) == rows()


def _can_turn(source: list[dict[str, Any]]) -> bool:
    labels: dict[str, set[str]] = {}
    for row in source:
        labels.setdefault(row["hypothesis"], set()).add(row["label"])
    return any({"entailment", "contradiction"} <= found for found in labels.values())


@covers(
    "RelationalCorpus.relations", "RelationalCorpus.cap_rule", "RelationalCorpus.held_out", "RelationalCorpus.seed", "RelationPart.name",
    "RelationPart.construction", "RelationPart.sources", "RelationPart.columns", "RelationPart.only", "RelationPart.cap", "RelationFile.source",
    "RelationFile.split", "RelationalCorpus.cap",
)  # fmt: skip
def test_relations(place: Place) -> None:
    nli, twins, captions = (table(place, "relations", name) for name in ("nli/small", "pairs/twins", "text/captions"))
    entailed = [(row["premise"], row["hypothesis"]) for row in nli if row["label"] == "entailment"]
    against = {row["premise"]: row["hypothesis"] for row in nli if row["label"] == "contradiction"}
    twin = list(dict.fromkeys((row["sentence1"], row["sentence2"]) for row in twins))

    def rows(*relations: Json, **corpus: Json) -> tuple[list[Row], list[str]]:
        whole: Json = {"kind": "relations", "relations": list(relations), **corpus}
        found, opened, stage = built(place, "relations", whole, **{O.replace(".", "_at_"): {"name": "rse"}})
        assert opened.relations is not None
        return found, [stage.relation_names[number] for number in opened.relations]

    found, names = rows(ENTAILMENT, TWIN)
    assert [row[:2] for row in found] == [*entailed, *twin] and names == ["entailment"] * len(entailed) + ["twin"] * len(twin)
    assert all(row[2] == against[row[0]] for row in found[: len(entailed)])
    assert all(row[2] in {tail for _, tail in twin} and row[2] != row[1] for row in found[len(entailed) :])
    groups: dict[str, list[str]] = {}
    for row in captions:
        groups.setdefault(row["image"], []).append(row["sentence"])
    assert {row[:2] for row in rows(CAPTION)[0]} == {(g[i], g[j]) for g in groups.values() for i in range(3) for j in range(i + 1, 3)}
    assert [row[:2] for row in rows({**ITSELF, "cap": None})[0]] == [
        (text, text) for text in dict.fromkeys(row["sentence"] for row in captions)
    ]
    assert [row[:2] for row in rows(ENTAILMENT, TWIN, cap=6)[0]] == [*entailed[:6], *twin[:6]]
    assert [row[:2] for row in rows(ENTAILMENT, {**TWIN, "cap": 3}, cap=6)[0]] == [*entailed[:6], *twin[:3]]
    sampled = [row[:2] for row in rows(TWIN, cap=6, cap_rule="sample")[0]]
    assert len(sampled) == 6 and set(sampled) < set(twin) and sampled != twin[:6]
    assert sampled != [row[:2] for row in rows(TWIN, cap=6, cap_rule="sample", seed=1)[0]]
    less = [row[:2] for row in rows(TWIN, held_out=4)[0]]
    assert len(less) == len(twin) - 8 and less != [row[:2] for row in rows(TWIN, held_out=4, seed=1)[0]]
    turned = {**TWIN, "columns": ["sentence2", "sentence1"]}
    assert [row[:2] for row in rows(turned)[0]] == [(b, a) for a, b in twin]
    write_table(place.root / "relations", "my/twins", [{**row, "split": "other", "kind": "xy"[n % 2]} for n, row in enumerate(twins)])
    mine: dict[str, Json] = {**TWIN, "sources": [{"source": "my/twins", "split": "other"}]}
    assert [row[:2] for row in rows(mine)[0]] == twin
    assert [row[:2] for row in rows({**mine, "only": ["kind", "y"]})[0]] == [(row["sentence1"], row["sentence2"]) for row in twins[1::2]]


@covers(
    "LinkTask.relations",
    "LinkTask.held_out",
    "LinkTask.seed",
    "LinkTask.pool",
    "LinkTask.source",
    "LinksSection.corpus",
    "LinksSection.pool",
    "Scores.links",
)
def test_links_rank_the_held_out_tails(place: Place) -> None:
    ranks = set()
    for pool, held_out, seed in (("relation", 4, 0), ("all", 4, 0), ("relation", 6, 0), ("relation", 4, 1)):
        corpus: Json = {"kind": "relations", "relations": [ENTAILMENT, TWIN], "held_out": held_out, "seed": seed}
        changes: dict[str, Json] = {
            "corpora.links": corpus, "evaluation.links": {"corpus": "links", "pool": pool}, "methods": {"m": {}}, "evaluation.max_length": 40,
        }  # fmt: skip
        plan, context = planned(place, "relations", changes)
        (artifact,) = run_local(plan, context)
        (task,) = (one for one in plan.trials[0].scores.tasks if one.kind == "links")
        triples = load_task(task, context.data_root).triples  # type: ignore[attr-defined]
        assert len(triples.heads) == 2 * held_out and Counter(triples.relation.tolist()) == {0: held_out, 1: held_out}
        student = Student(place.encoder, max_length=40)
        with torch.no_grad():
            heads, tails = (torch.nn.functional.normalize(student.encode(texts)).numpy() for texts in (triples.heads, triples.tails))
        table = heads @ tails.T
        own = [{int(t) for t, r in zip(triples.tail, triples.relation, strict=True) if pool == "all" or r == one} for one in (0, 1)]
        known = {(int(a), int(b)) for a, b in triples.known}
        inverse = []
        for row, (tail, relation) in enumerate(zip(triples.tail, triples.relation, strict=True)):
            others = [t for t in own[relation] if t != tail and (row, t) not in known]
            inverse.append(1 / (1 + sum(table[row, t] > table[row, tail] for t in others)))
        assert artifact.record.results["links"] == pytest.approx(100 * float(np.mean(inverse)), abs=1e-3)
        ranks.add((tuple(triples.heads), round(float(np.mean(inverse)), 6)))
    assert len(ranks) == 4


def queries_of(task: ScoredTask, context: Context) -> LoadedRetrieval:
    found = load_task(task, context.data_root)
    assert isinstance(found, LoadedRetrieval)
    return found


@covers(
    "RowsCorpus.fold",
    "RowsCorpus.document_field",
    "Task.fold",
    "Task.fold_role",
    "Task.document_field",
    "Fold.number",
    "Fold.num",
    "Fold.seed",
    "Fold.num_folds",
    "Fold.by",
    "Recipe.folds",
)
def test_folds_train_choose_and_test_on_queries_of_their_own(place: Place) -> None:
    root = place.root / "triplets"
    texts = [row["sent0"] for row in table(place, "triplets", "nli/triplets")]
    faqs = [{"faq_id": f"f{n}", "question": f"one {texts[n]}", "answer": f"two {texts[n]}"} for n in range(12)]
    write_table(root, "retrieval/stackfaq_faqs", faqs)
    write_table(root, "retrieval/stackfaq_queries", [{"query_id": f"q{n}", "query": texts[n]} for n in range(12)])
    write_table(root, "retrieval/stackfaq_qrels", [{"query_id": f"q{n}", "faq_id": f"f{n}", "relevance": 1} for n in range(12)])
    seen = {}
    for num, seed, part in ((3, 0, "answer"), (4, 0, "answer"), (3, 1, "question"), (3, 0, "question_answer")):
        corpus: Json = {"source": "retrieval/stackfaq", "split": None, "document_field": part}
        values: dict[str, Json] = {
            "corpus": corpus, "folds": {"num": num, "seed": seed}, "training.batch_size": 2, "methods.m.regularizers": STILL,
            "selection": {"task": "stackfaq"}, "evaluation.tasks": ["stackfaq"],
        }  # fmt: skip
        plan, context = planned(place, "triplets", values)
        tested: list[str] = []
        for trial in plan.trials:
            stage = trial.scores.encoder
            assert isinstance(stage, Train) and stage.selection is not None
            assert chosen_and_scored(stage.selection, trial.scores.tasks) == ()  # by queries of its own
            build_here(stage.corpus, context)
            opened = OpenedCorpus.open(folder_of(stage.corpus, context))
            anchors, positives = (opened.sentences(ids) for ids in opened.ids)
            dev, test = (queries_of(task, context) for task in (stage.selection.task, trial.scores.tasks[0]))
            queries = [[task.collection.queries[row] for row in task.rows] for task in (dev, test)]
            assert sorted([*anchors, *queries[0], *queries[1]]) == sorted(texts[:12])
            assert {len(part) for part in queries} <= {12 // num} and not set(queries[0]) & set(queries[1])
            words = {"answer": "two {0}", "question": "one {0}", "question_answer": "one {0} two {0}"}[part]
            assert positives == [words.format(anchor) for anchor in anchors]
            assert set(test.collection.documents) == {words.format(text) for text in texts[:12]}
            tested += queries[1]
            seen[num, seed, part, trial.fold] = tuple(queries[1])
        assert sorted(tested) == sorted(texts[:12]) and len(plan.trials) == num
    assert seen[3, 0, "answer", 0] != seen[3, 1, "question", 0] and seen[3, 0, "answer", 0] == seen[3, 0, "question_answer", 0]


def test_folds_by_answer_keep_queries_with_one_answer_together(place: Place) -> None:
    root = place.root / "triplets"
    texts = [row["sent0"] for row in table(place, "triplets", "nli/triplets")]
    write_table(
        root, "retrieval/stackfaq_faqs", [{"faq_id": f"f{n}", "question": f"one {texts[n]}", "answer": f"two {texts[n]}"} for n in range(6)]
    )
    write_table(root, "retrieval/stackfaq_queries", [{"query_id": f"q{n}", "query": texts[n]} for n in range(12)])
    write_table(root, "retrieval/stackfaq_qrels", [{"query_id": f"q{n}", "faq_id": f"f{n % 6}", "relevance": 1} for n in range(12)])
    shared = {}
    for by in ("query", "answer"):
        values: dict[str, Json] = {
            "corpus": {"source": "retrieval/stackfaq", "split": None}, "folds": {"num": 3, "by": by}, "training.batch_size": 2,
            "methods.m.regularizers": STILL, "evaluation.tasks": ["stackfaq"],
        }  # fmt: skip
        plan, context = planned(place, "triplets", values)
        shared[by] = 0
        for trial in plan.trials:
            stage = trial.scores.encoder
            assert isinstance(stage, Train)
            build_here(stage.corpus, context)
            opened = OpenedCorpus.open(folder_of(stage.corpus, context))
            trained = set(opened.sentences(opened.ids[1]))
            test = queries_of(trial.scores.tasks[0], context)
            shared[by] += sum(f"two {texts[texts.index(test.collection.queries[row]) % 6]}" in trained for row in test.rows)
    assert shared["answer"] == 0 < shared["query"]
