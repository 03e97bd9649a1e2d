"""`sentdist tune`: a file and a budget in; a recipe, a report and an encoder with its card out; stopped, it goes on."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app, building, tune
from sentdist.errors import DataError
from sentdist.plan.recipe import load_recipe
from sentdist.plan.suggestions import PlannedSearch
from sentdist.store import searches
from tests.support.tiny_encoders import declares_cls

WHO, WHAT, WHERE = ("man", "woman", "child", "dog", "cat"), ("eats", "drinks", "plays", "sings", "reads"), ("house", "garden", "street")


@pytest.fixture
def words(tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command over 75 pairs, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("SENTDIST_STORE", "SENTDIST_DATA", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = [f"a {who} {what} in the {where};the {who} in the {where} {what}" for who in WHO for what in WHAT for where in WHERE]
    (tmp_path / "mine.csv").write_text("anchor;positive\n" + "\n".join(rows) + "\n")
    return [
        "tune",
        "mine.csv",
        "--budget",
        "10m",
        "--trials",
        "2",
        "--local",
        "--encoder",
        str(tiny_encoder_dir),
        "--max-length",
        "20",
        "--methods",
        "contrastive",
    ]


def call(words: list[str]) -> Result:
    return CliRunner().invoke(app, words, env={"COLUMNS": "160"})


def test_the_best_encoder_for_a_file_is_searched_reported_and_written(words: list[str], tmp_path: Path) -> None:
    found = call(words)
    assert found.exit_code == 0, found.output
    folder = tmp_path / ".sentdist/tuned/tune-mine"
    assert load_recipe(folder / "recipe.yaml").search is not None
    for said in ("75 rows: 59 train, 8 dev, 8 test", "what dev chose", "main score", "Untouched encoder", "Contrastive", "Report: "):
        assert said in found.output, said
    (rests_on,) = [line for line in found.output.splitlines() if line.startswith("It rests on ")]
    assert rests_on == "It rests on 6 seeds and 8 test items."
    encoder = next(iter(folder.glob("encoder-*")), None)
    assert encoder is not None, found.output
    card = (encoder / "README.md").read_text()
    (scored,) = (line for line in card.partition("## Scores")[2].splitlines() if line.startswith("| retrieval-mine-csv-test"))
    assert re.fullmatch(r"\d+\.\d\d", scored.split("|")[-3].strip()), f"the untouched model stands beside it: {scored}"
    assert (encoder / "modules.json").is_file()
    assert (folder / "report/report.html").is_file()
    (encoder / "mine.txt").write_text("kept")
    again = call(words)
    assert again.exit_code == 0 and (encoder / "mine.txt").is_file(), again.output


def test_what_is_stopped_is_kept_and_said(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "build_within", stopped)
    found = call(words)
    assert found.exit_code == 130 and "the same command goes on from there; a training that ran starts over." in found.output


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--budget", "soon"], "30m, 2h"),
        (["--methods", "ranking"], '"ranking" is not one of'),
        (["--shape", "lists"], "expected one of pairs, triplets"),
        (["--columns", "a,b"], "columns a, b"),
        (["--no-header", "--columns", "anchor,positive"], "columns 1, 2"),
        (["--encoder", "owner/name"], "`sentdist pin owner/name` prints it"),
        (["--encoder", "minilm"], "Did you mean minilm-l6 (packaged: sentence-transformers/all-MiniLM-L6-v2)?"),
        (["--budget", "5s"], "expected a minute or more"),
        (["--name", "Bad_Name!"], "Say --name bad_name."),
        (["--max-length", "100000"], "takes 40 tokens"),
    ],
)
def test_a_mistake_is_reported_before_anything_is_built(words: list[str], more: list[str], said: str, tmp_path: Path) -> None:
    found = call([*words, *more])
    assert found.exit_code == 2 and said in found.output, found.output
    assert not (tmp_path / ".sentdist/store").exists() and not list(tmp_path.rglob("recipe.yaml"))


def test_another_search_is_not_written_over(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "build_within", lambda *_: None)
    monkeypatch.setattr(tune, "_print_winner", lambda *_: None)
    assert call(words).exit_code == 0
    recipe = tmp_path / ".sentdist/tuned/tune-mine/recipe.yaml"
    before = recipe.read_text()
    (tmp_path / "b").mkdir()
    (tmp_path / "b/mine.csv").write_text((tmp_path / "mine.csv").read_text())
    other = call([words[0], "b/mine.csv", *words[2:]])
    assert other.exit_code == 2 and "--name" in other.output and recipe.read_text() == before
    assert call([words[0], "b/mine.csv", *words[2:], "--name", "second"]).exit_code == 0
    recipe.write_text("mine: 1\n")
    assert "something that is no recipe" in call(words).output and recipe.read_text() == "mine: 1\n"


@pytest.mark.parametrize("is_same", [True, False])
def test_a_search_that_gives_way_to_one_of_other_options_is_reported(
    words: list[str], is_same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[PlannedSearch] = []
    monkeypatch.setattr(building, "build_within", lambda planned, *_: asked.append(planned))
    monkeypatch.setattr(tune, "_print_winner", lambda *_: None)
    assert "gives way" not in call(words).output
    before = SimpleNamespace(identity=asked[0].identity if is_same else "another")
    monkeypatch.setattr(searches, "find_search", lambda *_: before)
    assert ("gives way to this one" in call(words).output) != is_same


def test_an_encoder_keeps_the_pooling_that_it_declares(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "build_within", lambda *_: None)
    monkeypatch.setattr(tune, "_print_winner", lambda *_: None)
    declares_cls(Path(words[words.index("--encoder") + 1]), tmp_path / "cls")
    assert call([*words, "--encoder", str(tmp_path / "cls")]).exit_code == 0
    recipe = load_recipe(tmp_path / ".sentdist/tuned/tune-mine/recipe.yaml")
    assert [method.encoder["pooling"] for method in recipe.methods.values()] == ["mean", "mean", "cls", "cls"]


def test_the_first_line_may_be_said_to_name_the_columns(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PlannedSearch] = []
    monkeypatch.setattr(building, "build_within", lambda planned, *_: asked.append(planned))
    monkeypatch.setattr(tune, "_print_winner", lambda *_: None)
    rows = (tmp_path / "mine.csv").read_text().partition("\n")[2]
    (tmp_path / "mine.csv").write_text(f"What have they said?;What can one also say?\n{rows}")
    recipe = tmp_path / ".sentdist/tuned/tune-mine/recipe.yaml"
    for option, number in (("--header", 75), ("--no-header", 76)):
        found = call([*words, option])
        assert found.exit_code == 0, found.output
        assert any(note.startswith(f"{number} rows") for note in asked[-1].notes), asked[-1].notes
        assert f"header: {'true' if number == 75 else 'false'}" in recipe.read_text()
    (tmp_path / "mine.jsonl").write_text('{"anchor": "a", "positive": "b"}')
    assert "--header: found mine.jsonl, whose columns have names" in call([words[0], "mine.jsonl", *words[2:], "--header"]).output


def test_a_commit_stands_behind_the_at_of_a_name_and_not_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a@b").mkdir()
    (tmp_path / "a@b/file.csv").touch()
    assert tune._split_commit("owner/name@abc") == ("owner/name", "abc") and tune._split_commit("owner/name") == ("owner/name", None)
    assert tune._split_commit("a@b/file.csv") == ("a@b/file.csv", None) and tune._split_commit("minilm-l6") == ("minilm-l6", None)
    assert tune._place_of("hub:owner/data@abc") == ("hub:owner/data", "abc")
    assert tune._place_of("a@b/file.csv") == (str(tmp_path / "a@b/file.csv"), None) and tune._place_of("nowhere.csv") == (
        "nowhere.csv",
        None,
    )
    said = {"shape": "pairs", "revision": "abc", "columns": ["a", "b"], "encoding": "cp1251"}
    assert tune._fields_of_file(shape="pairs", revision="abc", columns=["a", "b"], header=None, encoding="cp1251") == said
    assert tune._fields_of_file(shape=None, revision=None, columns=[], header=None, encoding=None) == {}


def test_an_encoding_that_there_is_not_is_reported_once(words: list[str]) -> None:
    found = call([*words[:2], "--local", "--encoding", "klingon"])
    assert found.exit_code == 2 and "found 'klingon'; expected an encoding that Python knows" in found.stderr
    assert "Value error" not in found.stderr


def test_a_header_is_said_of_packed_files_and_of_text(tmp_path: Path) -> None:
    for name in ("a.csv.gz", "a.txt", "A.TSV"):
        tune._check_header(True, name)
    for name in ("a.jsonl.gz", "a.parquet"):
        with pytest.raises(DataError, match="whose columns have names"):
            tune._check_header(True, name)


@pytest.mark.parametrize("quick", [0, tune.QUICK_BYTES])
def test_who_waits_for_a_large_file_is_shown_for_what(quick: int, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of rows nothing was said for a minute on a busy machine."""
    monkeypatch.setattr(tune, "QUICK_BYTES", quick)
    found = call([*words[:2], "--local", "--methods", "none"])
    assert found.exit_code == 2 and ("Looking through mine.csv for texts that are alike" in found.stderr) == (quick == 0)


def test_a_folder_of_parts_is_searched_as_one_table(words: list[str], tmp_path: Path) -> None:
    header, *rows = (tmp_path / "mine.csv").read_text().splitlines()
    (tmp_path / "mine").mkdir()
    for number in range(3):
        (tmp_path / f"mine/part-{number}.csv").write_text("\n".join([header, *rows[25 * number : 25 * number + 25], ""]))
    found = call(["tune", "mine/", *words[2:], "--header"])
    assert found.exit_code == 0, found.output
    assert "3 files as one table, part-0.csv to part-2.csv" in found.output and "75 rows: 59 train, 8 dev, 8 test" in found.output
    assert list((tmp_path / ".sentdist/tuned/tune-mine").glob("encoder-*"))
