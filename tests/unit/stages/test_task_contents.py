"""What one's own tasks hold is looked at while planning, by what reads it when an encoder is scored, once for each content."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.data.sources.file_facts import FileFacts, remember_note
from sentdist.errors import DataError
from sentdist.plan.recipe import Recipe, recipe_from_values
from sentdist.plan.specs import EncoderUse
from sentdist.plan.stage import Json
from sentdist.plan.task_kinds import TASK_KINDS
from sentdist.plan.task_names import OWN_KINDS
from sentdist.plan.unroll import Plan
from sentdist.stages.planning.planned import planned_evaluation, planned_recipe, planned_search
from sentdist.stages.tasks import load
from sentdist.stages.tasks.load import load_task
from sentdist.store.garbage import forecast
from sentdist.store.store import ArtifactStore
from tests.support.planning import RECIPES
from tests.support.tiny_data import tiny_plan, tiny_values

ROOT = RECIPES.parents[1]
HEADS = {
    "sts": "sentence1,sentence2,score",
    "pairs": "sentence1,sentence2,label",
    "classification": "text,label",
    "clustering": "text,label",
    "reranking": "query_id,query,document_id,document,relevance",
    "triplets": "sent0,sent1,hard_neg",
    "retrieval": "query_id,doc_id,relevance",
}
GOOD = {
    "sts": [f"text {n},another {n},{n % 4}" for n in range(12)],
    "pairs": [f"text {n},another {n},{n % 2}" for n in range(12)],
    "classification": [f"text {n},{'ab'[n % 2]}" for n in range(24)],
    "clustering": [f"text {n},{'ab'[n % 2]}" for n in range(24)],
    "reranking": [f"q{n // 2},what {n // 2},d{n},text {n},{n % 2}" for n in range(12)],
    "triplets": [f"text {n},another {n},no {n}" for n in range(12)],
    "retrieval": [f"q{n},d{n},1" for n in range(6)],
}
TEXTS = {"sts": 24, "pairs": 24, "classification": 24, "clustering": 24, "reranking": 18, "triplets": 36, "retrieval": 14}  # different ones
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
    ("reranking", ["q,what,d1,one,1", "p,who,d2,two,1"], "found no query, of 2 with a relevant candidate, that has others, too"),
    ("triplets", ["a,b,c", "d,e,"], "found an empty hard_neg in row 2"),
    ("triplets", ["a,b,b", "d,e,e"], "found a negative that is the positive in all of 2 triplets"),
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


def test_every_kind_of_own_data_stands_in_these_tables() -> None:
    assert set(OWN_KINDS) == set(HEADS) == set(GOOD) == set(TEXTS) == {kind for kind, _, _ in BROKEN}


def test_whoever_plans_against_files_looks_at_tasks() -> None:
    """There is one module that does, and each of its plans is looked at."""
    planners = ("unroll", "searched", "evaluation_of")
    found = {}
    for path in (ROOT / "sentdist").rglob("*.py"):
        calls = [
            node.func.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
        if any(name in planners for name in calls) and "plan" not in path.relative_to(ROOT / "sentdist").parts:
            found[path.name] = calls
    del found["build_recipe.py"], found["tuning.py"]  # a function of their own is called so
    assert list(found) == ["planned.py"]
    looks = ("with_contents", "search_with_contents", "contents_of")
    assert [found["planned.py"].count(name) for name in (*planners, *looks)] == [1] * 6


@pytest.mark.parametrize(("kind", "rows", "message"), BROKEN)
def test_what_scoring_would_refuse_is_refused_by_the_plan_in_its_words(
    kind: str, rows: list[str], message: str, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    write(kind, rows, tmp_path)
    recipe = recipe_of(tiny_encoder_dir, evaluation={"tasks": ["scenes-sts", f"{kind}=my/{kind}"]})
    with pytest.raises(DataError, match=message) as raised:
        plan_here(recipe, tmp_path)
    plan, context = tiny_plan(recipe.model_dump(mode="json", exclude_unset=True), data=tmp_path, store=tmp_path / "store")
    with pytest.raises(DataError) as found:
        load_task(plan.trials[0].scores.tasks[1], context.data_root, context.folders)
    assert str(raised.value) == str(found.value)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("kind", [kind for kind in OWN_KINDS if TASK_KINDS[kind].chooses])
def test_what_chooses_checkpoints_is_looked_at_too(kind: str, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    rows, message = next((rows, message) for one, rows, message in BROKEN if one == kind)
    write(kind, rows, tmp_path)
    with pytest.raises(DataError, match=message):
        plan_here(recipe_of(tiny_encoder_dir, selection={"task": f"{kind}=my/{kind}"}), tmp_path)
    space = {"training.learning_rate": {"log": [1e-4, 1e-2]}}
    searched = recipe_of(
        tiny_encoder_dir, selection={"task": f"{kind}=my/{kind}"}, search={"suggest": "random", "samples": 2, "space": space}
    )
    with pytest.raises(DataError, match=message):
        planned_search(searched, store=str(tmp_path / "store"), data=tmp_path)


def test_a_search_and_an_evaluation_look_before_they_begin(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    write("pairs", ["a,b,1", "c,d,2"], tmp_path)
    search: Json = {"suggest": "random", "samples": 2, "space": {"training.learning_rate": {"log": [1e-4, 1e-2]}}}
    recipe = recipe_of(
        tiny_encoder_dir, selection={"task": "sts=generated/sts@dev"}, evaluation={"tasks": ["pairs=my/pairs"]}, search=search
    )
    with pytest.raises(DataError, match="label '2' in row 2"):
        planned_search(recipe, store=str(tmp_path / "store"), data=tmp_path)
    use = EncoderUse(checkpoint=str(tiny_encoder_dir), pooling="mean")
    with pytest.raises(DataError, match="label '2' in row 2"):
        planned_evaluation(use, ["pairs=my/pairs"], runtime=recipe.runtime, store=ArtifactStore(tmp_path / "store"), data=tmp_path)


def test_what_is_wrong_with_several_files_is_reported_at_once(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    write("pairs", ["a,b,1", "c,d,2"], tmp_path)
    write("sts", ["a,b,1", "c,d,much"], tmp_path)
    recipe = recipe_of(tiny_encoder_dir, evaluation={"tasks": ["pairs=my/pairs", "scenes-sts"]}, selection={"task": "sts=my/sts"})
    with pytest.raises(DataError) as raised:
        plan_here(recipe, tmp_path)
    said = str(raised.value)
    assert said.startswith("2 tasks: ") and said.endswith("Nothing was started.")
    assert "label '2' in row 2" in said and "score much in row 2" in said and said.count("expected") == 2


def test_a_silent_hub_is_noted_and_an_empty_set_refused(tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan needs no network where the hub has named a commit before; rows that come are looked at."""
    import datasets

    name, commit = "hub:owner/name", "0123456789abcdef0123456789abcdef01234567"
    facts = FileFacts(digest=commit, num_rows=2, columns=("sentence1", "sentence2", "score"), splits=(("test", 2),))
    remember_note([name, commit], facts)
    recipe = recipe_of(tiny_encoder_dir, evaluation={"tasks": [f"sts={name}#{commit}@test"]})

    def silent(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", silent)
    plan = plan_here(recipe, tmp_path)
    assert [note for note in plan.notes if "no route" in note and note.endswith("its rows are not checked.")]
    assert "sts-owner-name-test" not in plan.rows
    rows = datasets.Dataset.from_dict({"sentence1": ["a", "b"], "sentence2": ["c", "d"], "score": [1.0, 1.0]})
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.DatasetDict({"test": rows}))
    with pytest.raises(DataError, match="one score, 1, in all of 2 pairs"):
        plan_here(recipe, tmp_path)


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_a_second_plan_reads_nothing_until_the_file_changes(
    kind: str, tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(kind, GOOD[kind], tmp_path)
    recipe = recipe_of(tiny_encoder_dir, evaluation={"tasks": [f"{kind}=my/{kind}"]})
    first = plan_here(recipe, tmp_path)

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(load, "load_task", refuse)
    assert plan_here(recipe, tmp_path).rows == first.rows
    write(kind, GOOD[kind][:-1], tmp_path)
    with pytest.raises(AssertionError, match="read again"):
        plan_here(recipe, tmp_path)


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_a_forecast_counts_the_texts_of_own_tasks(kind: str, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    write(kind, GOOD[kind], tmp_path)
    plan = plan_here(recipe_of(tiny_encoder_dir, evaluation={"tasks": [f"{kind}=my/{kind}"]}), tmp_path)
    scores = next(one for one in forecast(plan, ArtifactStore(tmp_path / "store")).kinds if one.kind == "scores")
    assert (scores.sentences, scores.is_guessed) == (2 * TEXTS[kind], False), "of two methods"


def test_held_out_rows_of_one_score_are_reported_by_the_plan(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """The file has two scores, its test split one."""
    rows = [f"text {n},another {n},{n % 5 if n < 60 else 1},{'train' if n < 40 else 'dev' if n < 60 else 'test'}" for n in range(80)]
    (tmp_path / "own.csv").write_text("\n".join(["sentence1,sentence2,score,split", *rows]) + "\n")
    changes: dict[str, Json] = {
        "corpus": {"kind": "own", "file": str(tmp_path / "own.csv")},
        "methods": {"base": {}, "fine_tuned": {"objective": {"name": "regression", "loss": "mse"}}},
        "evaluation": {"tasks": ["own"]},
    }
    with pytest.raises(DataError, match="sts-own-csv-test: found one score, 1, in all of 20 pairs"):
        plan_here(recipe_of(tiny_encoder_dir, **changes), tmp_path)


def test_each_fold_of_an_own_collection_is_looked_at(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """Queries that share their answers are fewer groups than folds."""
    write("retrieval", [f"q{n},d{n // 3},1" for n in range(6)], tmp_path)
    changes: dict[str, Json] = {
        "corpus": {"source": "my/retrieval"}, "folds": {"num": 3, "by": "answer"}, "evaluation": {"tasks": ["retrieval=my/retrieval"]},
        "training": {"batch_size": 2, "max_length": 20},
    }  # fmt: skip
    with pytest.raises(DataError, match="2 groups of 6 queries that share no answer"):
        plan_here(recipe_of(tiny_encoder_dir, **changes), tmp_path)
    write("retrieval", [f"q{n},d{n},1" for n in range(6)], tmp_path)
    assert plan_here(recipe_of(tiny_encoder_dir, **changes), tmp_path).rows["retrieval-my-retrieval"] == TEXTS["retrieval"]


def test_the_command_tells_it_in_one_sentence_and_builds_nothing(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    write("sts", ["a,b,1", "c,d,much", "e,f,2"], tmp_path)
    recipe = tmp_path / "tiny.yaml"
    values = recipe_of(tiny_encoder_dir, evaluation={"tasks": ["sts=my/sts"]}).model_dump(mode="json", exclude_unset=True)
    recipe.write_text(yaml.safe_dump(values))
    for command in (["plan"], ["sweep", "--local"]):
        done = CliRunner().invoke(app, [*command, str(recipe), "--store", str(tmp_path / "store"), "--data", str(tmp_path)])
        assert done.exit_code == 2 and "score much in row 2" in " ".join(done.output.split()), done.output
    assert not (tmp_path / "store").exists()


def test_looking_loads_no_torch(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    for kind in OWN_KINDS:
        write(kind, GOOD[kind], tmp_path)
    recipe = recipe_of(tiny_encoder_dir, evaluation={"tasks": [f"{kind}=my/{kind}" for kind in OWN_KINDS]})
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json", exclude_unset=True)))
    script = (
        "import sys; from pathlib import Path; from sentdist.stages.planning.planned import planned\n"
        f"planned(Path({str(tmp_path / 'tiny.yaml')!r}), store={str(tmp_path / 'store')!r}, data=Path({str(tmp_path)!r}))\n"
        "print(sorted(set(sys.modules) & {'torch', 'transformers', 'sklearn', 'ray'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
