"""Files of one's own, from the command line: run, tune, evaluate and compare on rows that are held out."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

import sentdist
from sentdist.cli import app
from sentdist.recipe.recipe import load_recipe
from sentdist.run.backend import LocalBackend
from sentdist.stages.planned import place_of, split_commit

ROOT = Path(__file__).parents[3]


GUIDE = (ROOT / "infra/docs/data.md").read_text(encoding="utf-8")


WHO, WHAT, WHERE = ("man", "woman", "child", "dog", "cat"), ("eats", "drinks", "plays", "sings", "reads"), ("house", "garden", "street")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of the command behind `sentdist`, in a folder of this test that has the recipes."""
    section = GUIDE.partition("\n## In a recipe\n")[2].partition("\n## ")[0]
    block = re.search(r"```bash\n(.+?)\n```", section, re.DOTALL)
    assert block is not None
    words = shlex.split(block[1])
    assert words[:2] == ["sentdist", "sweep"] and "--local" in words and "corpus.file=pairs.csv" in words
    (tmp_path / "rayjobs").symlink_to(ROOT / "rayjobs")
    monkeypatch.chdir(tmp_path)
    for name in ("SENTDIST_STORE", "SENTDIST_DATA", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return words[1:]


def pairs(separator: str = ",") -> str:
    scenes = [(f"a {who} {what} in the {where}", f"the {who} in the {where} {what}") for who in WHO for what in WHAT for where in WHERE]
    return f"anchor{separator}positive\n" + "".join(f"{one}{separator}{other}\n" for one, other in scenes)


def done(command: list[str]) -> Result:
    return CliRunner().invoke(app, command, env={"COLUMNS": "160"})


def test_the_command_trains_on_the_file_and_scores_rows_held_out_of_it(
    command: list[str], tmp_path: Path, tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pairs.csv").write_bytes(pairs(";").encode("utf-16"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "no server")
    changes = (f"encoder.checkpoint={tiny_encoder_dir}", "training.batch_size=8", "training.max_length=20", "evaluation.max_length=20")
    small = [word for change in changes for word in ("--set", change)]
    found = done([*command, *small])
    assert found.exit_code == 0, found.output
    assert "pairs.csv: pairs in anchor, positive\n" in found.output
    assert re.search(r"75 rows: \d+ train, \d dev, \d test, in \d+ groups; the largest group has \d+ rows?", found.output), found.output
    table = found.output.partition("main score")[2]
    assert all(row in table for row in ("retrieval-pairs-csv-test", "Untouched encoder", "Shared words", "Contrastive"))
    reported, first = found.output.find("MLflow is not used: MLFLOW_TRACKING_URI"), found.output.find("stages to build")
    assert 0 <= reported < first, "before anything is built, and no failure"
    encoder = re.search(r"^Encoder: (.+)$", found.output, re.MULTILINE)
    assert encoder is not None and (Path(encoder[1]) / "modules.json").is_file()
    has_gained = "No trained row is above the untouched encoder" not in found.output
    assert ("sentdist export" in found.output) == has_gained and "sentdist report own" in found.output
    leaks = done(["plan", *(word for word in command[1:] if word not in ("--local", "--no-grid")), *small, "--leaks"])
    assert leaks.exit_code == 0 and Path(".sentdist/leaks/own.csv").read_text().count("\n") == 1, leaks.output
    Path("pairs.csv").write_text("questions,x,y,z\na b,b c,c d,d e\n")
    refused = done(command)
    assert refused.exit_code == 2 and "--columns anchor=questions,positive=x" in refused.output


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
        f"{tiny_encoder_dir}?max_length=20",
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

    monkeypatch.setattr(LocalBackend, moment, stopped)
    found = call(words)
    assert found.exit_code == 130 and "the same command continues from here" in found.output
    assert len(list((tmp_path / ".sentdist/tuned/tune-mine").glob("encoder-*"))) == (moment == "search"), found.output


MISTAKES = [
    (["--budget", "soon"], "30m, 2h"), (["--budget", "5s"], "expected a minute or more"), (["--methods", "ranking"], '"ranking" is not one of'),
    (["--columns", "a,b"], "expected ROLE=COLUMN"), (["--columns", "anchor=a"], "columns a"),
    (["--encoder", "owner/name?max_length=20"], "git ls-remote"),
    (["--encoder", "minilm?max_length=20"], "Did you mean minilm-l6"), (["--name", "Bad_Name!"], "Use --name bad_name."), (["--encoder", "minilm-l6"], "the same for all"),
    (["--encoding", "klingon"], "found 'klingon'"),
]  # fmt: skip


def test_a_mistake_is_reported_before_anything_is_built(words: list[str], tmp_path: Path) -> None:
    for more, said in MISTAKES:
        found = call([*words, *more])
        assert found.exit_code == 2 and said in found.output, found.output
    assert not (tmp_path / ".sentdist/store").exists() and not list(tmp_path.rglob("recipe.yaml"))


ROWS = [(f"a {who} {what} in the {where}", f"the {who} in the {where} {what}") for who in WHO for what in WHAT for where in WHERE]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a FAQ of 75 rows; data lie elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SENTDIST_STORE", raising=False)
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("SENTDIST_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "faq.csv").write_bytes("".join(f"{one};{other}\n" for one, other in [("question", "answer"), *ROWS]).encode("utf-16"))
    return tmp_path


def _scored(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "160"})


def queries(name: str) -> int:
    (path,) = Path(".sentdist/store/scores").glob(f"*/items/{name}.parquet")
    return pq.read_table(path).num_rows


@pytest.mark.usefixtures("here")
def test_the_rows_that_tune_holds_out_for_test_are_scored(planted_encoder_dir: Path) -> None:
    found = _scored("evaluate", planted_encoder_dir, "--tasks", "own=faq.csv")
    assert found.exit_code == 0 and "retrieval-faq-csv-test" in found.output and "map" in found.output, found.output
    assert "75 rows: 42 train, 11 dev, 22 test" in found.output and queries("retrieval-faq-csv-test") == 22
    again = sentdist.evaluate(str(planted_encoder_dir), "own=faq.csv@test")
    assert again["retrieval-faq-csv-test"] == pytest.approx(100.0)


@pytest.mark.usefixtures("here")
def test_scores_and_comparisons_are_json_for_other_programs(planted_encoder_dir: Path, tiny_encoder_dir: Path) -> None:
    """Nothing else on stdout; the numbers are those of the Python door."""
    asked = ("--tasks", "own=faq.csv", "--format", "json")
    scored = _scored("evaluate", planted_encoder_dir, *asked)
    values = json.loads(scored.stdout)
    (line,) = values["tasks"]
    expected = sentdist.evaluate(str(planted_encoder_dir), "own=faq.csv")
    assert line["task"] == "retrieval-faq-csv-test" and line["score"] == expected["retrieval-faq-csv-test"] and line["num_items"] == 22
    assert Path(values["folder"]).is_dir() and values["pooling"] == "mean" and "Encoding" in scored.stderr
    compared = json.loads(_scored("compare", planted_encoder_dir, tiny_encoder_dir, *asked).stdout)
    found = sentdist.compare(str(planted_encoder_dir), str(tiny_encoder_dir), "own=faq.csv")
    difference = compared["lines"][0]["difference"]
    assert difference["difference"] == found.lines[0].difference.difference and difference["p"] == found.lines[0].difference.p
    assert compared["first"] == str(planted_encoder_dir)


def test_a_commit_follows_the_at_of_a_name_and_not_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a@b").mkdir()
    (tmp_path / "a@b/file.csv").touch()
    assert split_commit("owner/name@abc") == ("owner/name", "abc") and split_commit("owner/name") == ("owner/name", None)
    assert split_commit("a@b/file.csv") == ("a@b/file.csv", None) and split_commit("minilm-l6") == ("minilm-l6", None)
    assert place_of("hub:owner/data@abc") == ("hub:owner/data", "abc")
    assert place_of("a@b/file.csv") == (str(tmp_path / "a@b/file.csv"), None) and place_of("nowhere.csv") == ("nowhere.csv", None)
