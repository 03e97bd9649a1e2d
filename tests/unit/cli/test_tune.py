"""`sentdist tune`: a file and a budget in; a recipe, a report and an encoder with its card out; stopped, it goes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sentdist.cli import app, own_data
from sentdist.execution.tuning import Tuning
from sentdist.execution.workplaces import ThisProcess
from sentdist.plan.recipe import load_recipe
from sentdist.stages.planning.own_request import place_of, split_commit
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
    asked = [
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
    return ["tune", "mine.csv", *asked]


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
    assert " left  " in next(line for line in lines if "to build in this process" in line)
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


MISTAKES = [
    (["--budget", "soon"], "30m, 2h"), (["--budget", "5s"], "expected a minute or more"), (["--methods", "ranking"], '"ranking" is not one of'),
    (["--shape", "lists"], "expected one of pairs, triplets"), (["--columns", "a,b"], "columns a, b"),
    (["--no-header", "--columns", "anchor,positive"], "columns 1, 2"), (["--encoder", "owner/name"], "`sentdist pin owner/name` prints it"),
    (["--encoder", "minilm"], "Did you mean minilm-l6"), (["--name", "Bad_Name!"], "Say --name bad_name."), (["--max-length", "100000"], "takes 40 tokens"),
    (["--encoding", "klingon"], "found 'klingon'"),
]  # fmt: skip


def test_a_mistake_is_reported_before_anything_is_built(words: list[str], tmp_path: Path) -> None:
    for more, said in MISTAKES:
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


def test_what_is_said_of_the_file_and_its_encoders_stands_in_the_recipe(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tuning, "run", lambda self: None)
    monkeypatch.setattr(own_data, "QUICK_BYTES", 0)
    declares_cls(Path(words[words.index("--encoder") + 1]), tmp_path / "cls")
    for number, option in enumerate(("--header", "--no-header")):
        found = call(
            [
                *words,
                option,
                "--shape",
                "pairs",
                "--columns",
                "1,2" if number else "anchor, positive",
                "--out",
                f"here{number}",
                "--encoder",
                str(tmp_path / "cls"),
            ]
        )
        assert found.exit_code == 0 and f"\n{75 + number} rows" in found.output and "Looking through mine.csv" in found.stderr, found.output
        recipe = load_recipe(tmp_path / f"here{number}/search.yaml")
        corpus: Any = recipe.corpus
        assert (corpus.header, corpus.shape, list(corpus.columns)) == (
            not number,
            "pairs",
            ["1", "2"] if number else ["anchor", "positive"],
        )
        assert recipe.search is not None and recipe.search.samples == 2 and recipe.training.max_length == recipe.evaluation.max_length == 20
        assert [method.encoder["pooling"] for method in recipe.methods.values()] == ["mean", "mean", "cls", "cls"], "as each declares"
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
