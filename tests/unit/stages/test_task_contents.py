"""What one's own tasks hold is looked at while planning, by what reads it when an encoder is scored, once for each content."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.errors import DataError
from sentdist.recipe.recipe import Recipe, recipe_from_values
from sentdist.recipe.specs import EncoderUse
from sentdist.recipe.stage import Json
from sentdist.recipe.unroll import Plan
from sentdist.stages.planned import planned_evaluation, planned_recipe, planned_search
from sentdist.store.store import ArtifactStore
from sentdist.tasks.kinds import OWN_KINDS
from sentdist.tasks.task import load_task
from tests.support.tiny_data import tiny_plan, tiny_values

HEADS = {
    "sts": "sentence1,sentence2,score",
    "pairs": "sentence1,sentence2,label",
    "classification": "text,label",
    "clustering": "text,label",
    "reranking": "query_id,query,document_id,document,relevance",
    "triplets": "sent0,sent1,hard_neg",
    "retrieval": "query_id,doc_id,relevance",
}
BROKEN = [
    ("sts", ["a,b,1", "c,d,much", "e,f,2"], "found score much in row 2; expected a finite number"),
    ("sts", ["a,b,1", "c,,2"], "found an empty sentence2 in row 2"),
    ("sts", ["a,b,3", "c,d,3"], "found one score, 3, in all of 2 pairs; expected scores that differ"),
    ("pairs", ["a,b,1", "c,d,2"], "found label '2' in row 2 of the 2 that are read; expected 1 or 0"),
    ("pairs", ["a,b,1", "c,d,1"], "found one label, 1, in all of 2 rows read; expected pairs of both labels"),
    ("classification", [f"text {n},{'ab'[n % 2]}" for n in range(8)], "found 4 of 8 rows labelled 'a'; expected 12 rows of each label"),
    ("classification", [f"text {n},a" for n in range(30)], "found one label, 'a', in all rows"),
    ("classification", ["one,a", "two,"], "found no label in row 2"),
    ("clustering", [f"text {n},a" for n in range(8)], "found 1 label for 8 different texts"),
    ("clustering", [f"text {n},{n}" for n in range(8)], "found 8 labels for 8 different texts; expected two labels or more"),
    ("reranking", ["q,what,d1,one,1", "q,what,d2,two,yes"], "found relevance yes in row 2 of the judgements; expected an integer"),
    ("reranking", ["q,what,d1,one,0", "q,what,d2,two,0"], "found no query with a relevant candidate"),
    ("reranking", ["q,what,d1,one,1", "p,who,d2,two,1"], "found no query, of 2 with a relevant candidate, that has others"),
    ("triplets", ["a,b,c", "d,e,"], "found an empty hard_neg in row 2"),
    ("triplets", ["a,b,b", "d,e,e"], "found a negative that equals the positive in all of 2 triplets"),
    ("retrieval", ["q0,d0,1", "q99,d1,1"], "found query q99 in row 2 of the judgements; expected a query of the source"),
    ("retrieval", ["q0,d0,1", "q1,d99,1"], "found document d99 in row 2 of the judgements"),
    ("retrieval", ["q0,d0,1", "q1,d1,0"], "1 of 2 queries without a relevant document, first 'q1'"),
    ("retrieval", [f"q0,d{n},1" for n in range(8)], "found 8 documents, relevant to each query, and no others"),
]


def write(kind: str, rows: list[str], root: Path) -> None:
    """`rows` as my/KIND; of retrieval they are judgements of 6 queries and 8 documents."""
    folder = root / "my"
    folder.mkdir(parents=True, exist_ok=True)
    end = "_qrels" if kind == "retrieval" else ""
    (folder / f"{kind}{end}.csv").write_text("\n".join([HEADS[kind], *rows]) + "\n")
    if kind == "retrieval":
        (folder / "retrieval_docs.csv").write_text("\n".join(["doc_id,text", *(f"d{n},text {n}" for n in range(8))]) + "\n")
        (folder / "retrieval_queries.csv").write_text("\n".join(["query_id,query", *(f"q{n},what {n}" for n in range(6))]) + "\n")


def recipe_of(encoder: Path, **changes: Json) -> Recipe:
    methods = {"base": {}, "fine_tuned": {"objective": {"name": "info_nce"}}}
    values = tiny_values(encoder, corpus={"source": "generated/nli", "split": "train"}, methods=methods, baseline="base")
    return recipe_from_values(values | {"selection": None, "evaluation": {"tasks": ["scenes-sts"]}} | changes, where="tiny")


def plan_here(recipe: Recipe, folder: Path) -> Plan:
    return planned_recipe(recipe, store=str(folder / "store"), data=folder)[0]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_what_scoring_would_refuse_is_refused_by_the_plan_in_its_words(kind: str, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    for rows, message in ((rows, message) for one, rows, message in BROKEN if one == kind):
        write(kind, rows, tmp_path)
        recipe = recipe_of(tiny_encoder_dir, evaluation={"tasks": ["scenes-sts", f"{kind}=my/{kind}"]})
        with pytest.raises(DataError, match=message) as raised:
            plan_here(recipe, tmp_path)
        plan, context = tiny_plan(recipe.model_dump(mode="json", exclude_unset=True), data=tmp_path, store=tmp_path / "store")
        with pytest.raises(DataError) as found:
            load_task(plan.trials[0].scores.tasks[1], context.data_root, context.folders)
        assert str(raised.value) == str(found.value) and not (tmp_path / "store").exists()


def test_what_chooses_checkpoints_is_looked_at_too_and_all_mistakes_are_reported_at_once(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    write("pairs", ["a,b,1", "c,d,2"], tmp_path)
    write("sts", ["a,b,1", "c,d,much"], tmp_path)
    search: Json = {"suggest": "random", "samples": 2, "space": {"training.learning_rate": {"log": [1e-4, 1e-2]}}}
    both: dict[str, Json] = {"evaluation": {"tasks": ["pairs=my/pairs"]}, "selection": {"task": "sts=my/sts"}}
    with pytest.raises(DataError, match=r"^2 tasks: .*label '2' in row 2.*score much in row 2"):
        plan_here(recipe_of(tiny_encoder_dir, **both), tmp_path)
    with pytest.raises(DataError, match="score much in row 2"):
        planned_search(recipe_of(tiny_encoder_dir, **both, search=search), store=str(tmp_path / "store"), data=tmp_path)
    use, runtime = EncoderUse(checkpoint=str(tiny_encoder_dir), pooling="mean"), recipe_of(tiny_encoder_dir).runtime
    with pytest.raises(DataError, match="label '2' in row 2"):
        planned_evaluation(use, ["pairs=my/pairs"], runtime=runtime, store=ArtifactStore(tmp_path / "store"), data=tmp_path)
