"""Where files of one's own for tasks lie: what is proposed where nothing is found, and one file by two names."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.errors import DataError, RecipeError
from sentdist.plan.recipe import recipe_from_values
from sentdist.stages.planning.planned import planned_recipe
from sentdist.stages.tasks.load import load_task
from tests.support.tasks_data import stage_of, write_table
from tests.support.tiny_data import tiny_values

SHAPES = (
    "expected a folder or zip with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, as BEIR's are, or tables NAME_docs, NAME_queries and"
)
PLACES = [
    ("bnak", "nothing of that name", "Did you mean deep/bank or my/bank?"),
    ("my/bank.tar", "nothing of that name", "/bank"),
    ("my/packd.zip", "nothing of that name", "Did you mean my/packed.zip"),
    ("my/shpo", "nothing of that name", "Did you mean my/shop"),
    ("my/absent", "nothing of that name", "List the folder to see what there is."),
    ("my/empty", "a folder without corpus.jsonl", "Complete the folder."),
    ("my/empty/", "a folder without corpus.jsonl", "Complete the folder."),
    ("deep", "a folder without corpus.jsonl", "Did you mean deep/bank?"),
    ("my/bank/qrels", "a folder without corpus.jsonl", "Did you mean my/bank?"),
    ("my/readme.txt", "a file that is neither a table nor a zip", "List the folder"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two folders as BEIR's, three tables, a zip that is none, and pairs."""
    root = tmp_path / "data"
    for folder in ("my/bank", "deep/bank"):
        (root / folder / "qrels").mkdir(parents=True)
        (root / folder / "corpus.jsonl").write_text('{"_id": "d0", "text": "one"}\n{"_id": "d1", "text": "two"}\n')
        (root / folder / "queries.jsonl").write_text('{"_id": "q0", "text": "which"}\n')
        (root / folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t1\n")
    (root / "my/empty").mkdir()
    for name in ("packed.zip", "readme.txt", "shop_docs.csv", "shop_queries.csv", "shop_qrels.csv"):
        (root / "my" / name).write_text("")
    for name in ("my/pairs", "my/others"):
        rows = [{"sentence1": f"{name} {n}", "sentence2": f"b {n}", "label": n % 2, "split": "test" if n % 3 else "dev"} for n in range(12)]
        write_table(root, name, rows)
    return root


@pytest.mark.parametrize(("name", "found", "remedy"), PLACES)
def test_a_collection_that_is_not_there_is_reported_in_its_shapes(
    name: str, found: str, remedy: str, tiny_encoder_dir: Path, data: Path
) -> None:
    with pytest.raises(DataError) as raised:
        stage_of(tiny_encoder_dir, (f"retrieval={name}",), data)
    assert all(part in str(raised.value) for part in (f"task retrieval={name}: ", found, SHAPES, remedy)), raised.value
    assert ".parquet" not in str(raised.value)


@pytest.mark.parametrize(("name", "found", "remedy"), [one for one in PLACES if one[0] not in ("bnak", "my/readme.txt")])
def test_so_it_is_where_a_shell_looks(
    name: str, found: str, remedy: str, tiny_encoder_dir: Path, data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    monkeypatch.chdir(data)
    command = ["evaluate", str(tiny_encoder_dir), "--tasks", f"retrieval={name}", "--data", str(tmp_path / "root")]
    done = CliRunner().invoke(app, [*command, "--store", str(tmp_path / "store")])
    said = " ".join(done.output.split())
    assert done.exit_code == 2 and all(part in said for part in (found, SHAPES, remedy)), said
    assert "nothing" not in found or f"under {tmp_path / 'root'}, nor in {data}" in said


def test_the_collection_that_needs_no_files_is_one(tiny_encoder_dir: Path, data: Path) -> None:
    (task,) = stage_of(tiny_encoder_dir, ("retrieval=generated/faq",), data)[0].tasks
    assert len(load_task(task, None).sentences) > 100


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pairs=my/pairs", "pairs=my/pairs.parquet"),
        ("pairs=my/pairs@test", "pairs=./my/pairs.parquet@test"),
        ("retrieval=my/bank", "retrieval=my/bank/"),
    ],
)
def test_one_file_by_two_names_is_refused_with_both(one: str, other: str, tiny_encoder_dir: Path, data: Path) -> None:
    with pytest.raises(RecipeError) as raised:
        stage_of(tiny_encoder_dir, (one, other), data)
    assert f"found {one} and {other}, which are one file; expected each file once" in str(raised.value)


def test_two_files_of_one_content_are_refused_with_both(tiny_encoder_dir: Path, data: Path) -> None:
    (data / "my/copy.parquet").write_bytes((data / "my/pairs.parquet").read_bytes())
    with pytest.raises(RecipeError) as raised:
        stage_of(tiny_encoder_dir, ("pairs=my/pairs@test", "pairs=my/copy@test"), data)
    assert "found pairs=my/pairs@test and pairs=my/copy@test, two files of one content; expected each file once" in str(raised.value)


@pytest.mark.parametrize(("splits", "named"), [((), "train"), (("test",), "test")])
@pytest.mark.parametrize("is_first", [False, True])
def test_all_rows_beside_the_split_that_has_them_all_are_refused(
    splits: tuple[str, ...], named: str, is_first: bool, tiny_encoder_dir: Path, data: Path
) -> None:
    rows = [
        {"sentence1": f"c {n}", "sentence2": f"d {n}", "label": n % 2} | dict.fromkeys(["split"] if splits else [], "test")
        for n in range(9)
    ]
    write_table(data, "my/whole", rows)
    tasks = ("pairs=my/whole", f"pairs=my/whole@{named}")[:: 1 if is_first else -1]
    with pytest.raises(RecipeError) as raised:
        stage_of(tiny_encoder_dir, tasks, data)
    assert f"found {tasks[0]} and {tasks[1]}, which are the same rows: the file has no others" in str(raised.value)
    (data / "my/copy.parquet").write_bytes((data / "my/whole.parquet").read_bytes())
    with pytest.raises(RecipeError, match="two files of one content"):
        stage_of(tiny_encoder_dir, (tasks[0], tasks[1].replace("whole", "copy")), data)


def test_other_rows_and_other_files_are_other_tasks(tiny_encoder_dir: Path, data: Path) -> None:
    (data / "my/copy.parquet").write_bytes((data / "my/pairs.parquet").read_bytes())
    tasks = ("pairs=my/pairs", "pairs=my/pairs.parquet@test", "pairs=my/others", "pairs=my/copy@dev")
    assert len(stage_of(tiny_encoder_dir, tasks, data)[0].tasks) == 4


def test_what_chooses_checkpoints_counts_a_file_once(tiny_encoder_dir: Path, data: Path) -> None:
    methods = {"trained": {"objective": {"name": "info_nce"}}}
    values = tiny_values(tiny_encoder_dir, corpus={"source": "generated/nli", "split": "train"}, methods=methods, baseline=None)
    selection = {"task": "pairs=my/pairs@dev+pairs=my/pairs.parquet@dev"}
    recipe = recipe_from_values(values | {"selection": selection, "evaluation": {"tasks": ["scenes-sts"]}}, where="tiny")
    with pytest.raises(RecipeError, match=r"selection\.task: found pairs=my/pairs@dev and pairs=my/pairs\.parquet@dev, which are one file"):
        planned_recipe(recipe, store=str(data / "store"), data=data)
