"""The command that the guide prints for data of one's own, typed as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from sentdist.cli import app

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "rayjobs/recipes/data.md").read_text(encoding="utf-8")
WHO, WHAT, WHERE = ("man", "woman", "child", "dog", "cat"), ("eats", "drinks", "plays", "sings", "reads"), ("house", "garden", "street")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of the command behind `sentdist`, in a folder of this test that has the recipes."""
    section = GUIDE.partition("\n## Your own data\n")[2].partition("\n## ")[0]
    block = re.search(r"```bash\n(.+?)\n```", section, re.DOTALL)
    assert block is not None
    words = shlex.split(block[1])
    assert words[:2] == ["sentdist", "run"] and "--local" in words and "corpus.file=pairs.csv" in words
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
    assert "pairs.csv: pairs in anchor, positive; text in utf-16; separated by semicolons" in found.output
    assert re.search(r"75 rows: \d+ train, \d dev, \d test, in \d+ groups; the largest group has \d+ rows?", found.output), found.output
    table = found.output.partition("main score")[2]
    assert all(row in table for row in ("retrieval-pairs-csv-test", "Untouched encoder", "Shared words", "Contrastive"))
    reported, first = found.output.find("MLflow is left out: MLFLOW_TRACKING_URI"), found.output.find("stages to build")
    assert 0 <= reported < first, "before anything is built, and no failure"
    encoder = re.search(r"^Encoder: (.+)$", found.output, re.MULTILINE)
    assert encoder is not None and (Path(encoder[1]) / "modules.json").is_file()
    has_gained = "No trained row is above the untouched encoder" not in found.output
    assert ("sentdist export" in found.output) == has_gained and "sentdist report own" in found.output
    leaks = done(["leaks", *(word for word in command[1:] if word != "--local"), *small])
    assert leaks.exit_code == 0 and Path(".sentdist/leaks/own.csv").read_text().count("\n") == 1, leaks.output
    Path("pairs.csv").write_text("questions,x,y,z\na b,b c,c d,d e\n")
    refused = done(command)
    assert refused.exit_code == 2 and "--set 'corpus.columns=[" in refused.output
