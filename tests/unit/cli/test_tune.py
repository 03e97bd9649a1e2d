"""`sentdist tune`: a file and a budget in; a recipe, a report and an encoder with its card out; stopped, it goes on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app
from sentdist.cli import train as own_data
from sentdist.errors import DataError
from sentdist.execution.build_recipe import ThisProcess
from sentdist.execution.tuning import Tuning
from sentdist.plan.recipe import load_recipe
from sentdist.stages.planning.planned import place_of, split_commit
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


def test_a_search_hands_over_the_average_of_its_seeds_with_its_own_score(words: list[str], tmp_path: Path) -> None:
    found = call(words)
    assert found.exit_code == 0, found.output
    folder = tmp_path / ".sentdist/tuned/tune-mine"
    assert load_recipe(folder / "search.yaml").search is not None
    recipe = load_recipe(folder / "recipe.yaml")
    assert recipe.search is None and list(recipe.seeds) == [0, 1, 2, 3, 4, 5] and recipe.selection is None
    lines = found.output.splitlines()
    begun = lines.index(next(line for line in lines if "to build in this process" in line))
    ended = next(number for number, line in enumerate(lines) if number > begun and not line)
    assert all(" left  " in line for line in lines[begun:ended]), "time left in every line"
    assert any(word in lines[-2] for word in ("Better than", "Not shown to be better than", "Worse than")), lines[-2]
    assert "push" not in found.output and ("Encoder: " in lines[-1] or "Keep " in lines[-1])
    (encoder,) = folder.glob("encoder-*")
    card = (encoder / "README.md").read_text()
    assert "the average of 6 seeds" in card
    (scored,) = (line for line in card.partition("## Scores")[2].splitlines() if line.startswith("| retrieval-mine-csv-test"))
    assert scored.split("|")[3].strip() in lines[-2], "the card and the last lines have the score of the very encoder"
    assert re.fullmatch(r"\d+\.\d\d", scored.split("|")[-3].strip()), f"the untouched model's is beside it: {scored}"
    assert (folder / "report/report.html").is_file()
    (encoder / "mine.txt").write_text("kept")
    again = call(words)
    assert again.exit_code == 0 and (encoder / "mine.txt").is_file(), again.output


@pytest.mark.parametrize("moment", ["search", "build"])
def test_who_stops_gets_the_best_that_is_finished(words: list[str], moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the search the first training is handed over; before it is finished there is nothing."""

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ThisProcess, moment, stopped)
    found = call(words)
    assert found.exit_code == 130 and "the same command goes on from here" in found.output
    assert len(list((tmp_path / ".sentdist/tuned/tune-mine").glob("encoder-*"))) == (moment == "search"), found.output


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
    monkeypatch.setattr(Tuning, "run", lambda self: None)
    assert call(words).exit_code == 0
    recipe = tmp_path / ".sentdist/tuned/tune-mine/search.yaml"
    before = recipe.read_text()
    (tmp_path / "b").mkdir()
    (tmp_path / "b/mine.csv").write_text((tmp_path / "mine.csv").read_text())
    other = call([words[0], "b/mine.csv", *words[2:]])
    assert other.exit_code == 2 and "--name" in other.output and recipe.read_text() == before
    assert call([words[0], "b/mine.csv", *words[2:], "--name", "second"]).exit_code == 0
    recipe.write_text("mine: 1\n")
    assert "something that is no recipe" in call(words).output and recipe.read_text() == "mine: 1\n"


def test_an_encoder_keeps_the_pooling_that_it_declares(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tuning, "run", lambda self: None)
    declares_cls(Path(words[words.index("--encoder") + 1]), tmp_path / "cls")
    assert call([*words, "--encoder", str(tmp_path / "cls")]).exit_code == 0
    recipe = load_recipe(tmp_path / ".sentdist/tuned/tune-mine/search.yaml")
    assert [method.encoder["pooling"] for method in recipe.methods.values()] == ["mean", "mean", "cls", "cls"]


def test_the_first_line_may_be_said_to_name_the_columns(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tuning, "run", lambda self: None)
    rows = (tmp_path / "mine.csv").read_text().partition("\n")[2]
    (tmp_path / "mine.csv").write_text(f"What have they said?;What can one also say?\n{rows}")
    recipe = tmp_path / ".sentdist/tuned/tune-mine/search.yaml"
    for option, number in (("--header", 75), ("--no-header", 76)):
        found = call([*words, option])
        assert found.exit_code == 0, found.output
        assert f"\n{number} rows" in found.output
        assert f"header: {'true' if number == 75 else 'false'}" in recipe.read_text()
    (tmp_path / "mine.jsonl").write_text('{"anchor": "a", "positive": "b"}')
    assert "--header: found mine.jsonl, whose columns have names" in call([words[0], "mine.jsonl", *words[2:], "--header"]).output


def test_a_commit_follows_the_at_of_a_name_and_not_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a@b").mkdir()
    (tmp_path / "a@b/file.csv").touch()
    assert split_commit("owner/name@abc") == ("owner/name", "abc") and split_commit("owner/name") == ("owner/name", None)
    assert split_commit("a@b/file.csv") == ("a@b/file.csv", None) and split_commit("minilm-l6") == ("minilm-l6", None)
    assert place_of("hub:owner/data@abc") == ("hub:owner/data", "abc")
    assert place_of("a@b/file.csv") == (str(tmp_path / "a@b/file.csv"), None) and place_of("nowhere.csv") == ("nowhere.csv", None)


def test_an_encoding_that_there_is_not_is_reported_once(words: list[str]) -> None:
    found = call([*words[:2], "--local", "--encoding", "klingon"])
    assert found.exit_code == 2 and "found 'klingon'; expected an encoding that Python knows" in found.stderr
    assert "Value error" not in found.stderr


def test_a_header_is_said_of_packed_files_and_of_text() -> None:
    for name in ("a.csv.gz", "a.txt", "A.TSV"):
        own_data.corpus_fields(name, shape=None, columns="", header=True, encoding=None)
    for name in ("a.jsonl.gz", "a.parquet"):
        with pytest.raises(DataError) as refused:
            own_data.corpus_fields(name, shape=None, columns="", header=True, encoding=None)
        assert refused.value.where == "--header"


@pytest.mark.parametrize("quick", [0, own_data.QUICK_BYTES])
def test_who_waits_for_a_large_file_is_shown_for_what(quick: int, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of rows nothing was said for a minute on a busy machine."""
    monkeypatch.setattr(own_data, "QUICK_BYTES", quick)
    found = call([*words[:2], "--local", "--methods", "none"])
    assert found.exit_code == 2 and ("Looking through mine.csv for texts that are alike" in found.stderr) == (quick == 0)


def test_a_folder_of_parts_is_searched_as_one_table(words: list[str], tmp_path: Path) -> None:
    header, *rows = (tmp_path / "mine.csv").read_text().splitlines()
    (tmp_path / "mine").mkdir()
    for number in range(3):
        (tmp_path / f"mine/part-{number}.csv").write_text("\n".join([header, *rows[25 * number : 25 * number + 25], ""]))
    found = call(["tune", "mine/", *words[2:], "--header"])
    assert found.exit_code == 0, found.output
    assert "3 files as one table, part-0.csv to part-2.csv" in found.output and "75 rows: " in found.output
    assert list((tmp_path / ".sentdist/tuned/tune-mine").glob("encoder-*"))
