"""What commands say of what was typed wrong: in plain words, with the thing to type instead."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist.cli import app

DEMO = str(Path(__file__).parents[3] / "rayjobs/recipes/demo.yaml")
OWN = str(Path(__file__).parents[3] / "rayjobs/recipes/own.yaml")
SEARCH = str(Path(__file__).parents[3] / "rayjobs/recipes/search.yaml")
LATIN = "name: x\n# two\nabout: gr\u00fc\u00df\n".encode("latin1")
FILES = {
    "twice.yaml": b"name: x\nseeds: [1]\nseeds: [2]\n",
    "empty.yaml": b"",
    "good.csv": b"question,answer\n1,2\n",
    "latin.yaml": LATIN,
    "bad.jsonl": b'{"a": "one", "b": "two"}\n{a: 2}\n',
    "five.csv": b"a,b,c,d,e\nw x,x y,y z,z w,w w\n",
    "nameless.yaml": b"corpus: {source: a}\nevaluation: {tasks: [sts]}\nmethods: {base: {}}\n",
}


MISTAKES = [
    (("report", "any", "--out", "empty.yaml"), "--out empty.yaml: found a file of that name; expected a folder, which is made."),
    (("plan", "demmo.yaml"), "expected a readable recipe"),
    (("plan", DEMO, "--set", "training.batch_sze=8"), 'did you mean "batch_size"'),
    (("plan", DEMO, OWN), "one recipe a command"),
    (("run", DEMO, "--local", "--set", "encoder.checkpoint=./nowhere"), "expected a saved Hugging Face encoder"),
    (("explain", "abc", "def"), "expected one artifact"),
    (("report", "unheard_of"), "expected a sweep that was started"),
    (("stop",), "found no sweep"),
    (("plan", DEMO, "--format", "xml"), "--format"),
    (("plan", DEMO, "--format", "json", "--trials"), "--trials: found no --format table"),
    (("plan", SEARCH, "--format", "json"), "--format json: found"),
    (("stop", "demo", "--all"), "found demo and --all"),
    (("plan", "twice.yaml"), 'found line 3: the key "seeds" stands twice; expected valid YAML. Correct the line named.'),
    (("plan", "good.csv"), "It looks like data: `sentdist tune good.csv`."),
    (("plan", "latin.yaml"), "(line 3: bytes that are no UTF-8); expected a readable recipe. Save it as UTF-8 text"),
    (("plan", "nameless.yaml"), "nameless.yaml: name: found nothing; expected a name such as my_recipe. Nothing was started."),
    (("plan", DEMO, "--set", "runtime.workers=0"), "runtime.workers: found 0; expected 1 or more. Nothing was started."),
    (("evaluate", "minilm-l6", "--tasks", "stss"), 'sentdist evaluate: tasks: "stss" is no task. Did you mean sts or stsb'),
    (("evaluate", "minilm-l6", "--tasks", "scenes-sts", "--max-length", "5000"), "max_length: found 5,000, where minilm-l6 takes 256 tokens"),
    (("plan", DEMO, "--set", "encoder.checkpoint=all-MiniLM-L6-v2"), "Did you mean minilm-l6 (packaged: sentence-transformers/all-MiniLM-L6-v2)?"),
    (("plan", DEMO, "--on", "8xFOO"), "8xFOO"),
    (("plan", SEARCH, "--on", "8xH100"), "--on: found"),
    (("plan", SEARCH, "--trials"), "a search suggests its trials as it goes"),
    (("store", "check", "trainz"), 'kind: found trainz; expected one of graded, groups'),
    (("report",), "sentdist report: found neither a sweep nor --paper; expected one of the two. Run `sentdist sweep RECIPE` first."),
    (("evaluate", "minilm-l6", "--tasks", "stsb", "--data", "nowhere"), "data root: found no folder nowhere"),
    (("plan", DEMO, "--set", "evaluation.tasks=[sts=good.csv]", "--data", "other"), "good.csv there. It lies elsewhere: --data . and good, for sources are named"),
    (("encode", "minilm-l6", "good.csv", "--out", "x.npy"), "found columns question, answer; expected one that holds the sentences. Say --column question, or others."),
    (("tune", "good.csv", "--shape", "pair"), '--shape: found pair; expected one of pairs, triplets, graded, faq. Did you mean "pairs"?'),
    (("tune", "five.csv"), "Name them in this order: --columns a,b (tune), or --set 'corpus.columns=[a, b]' (a recipe)."),
    (("tune", "bad.jsonl"), "bad.jsonl: line 2: found {a: 2}; expected a JSON object. Correct that line."),
    (("plan", OWN), "pairs.csv: found no such file; expected a table of texts"),
    (("evaluate", "minilm"), "encoder: found minilm, which is neither a folder nor a packaged encoder"),
    (("plan", DEMO, "--set", "encoder.checkpoint=owner/name", "--set", "encoder.revision=main"), "found owner/name at main, which may move"),
]  # fmt: skip


def test_a_mistake_is_reported_with_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SENTDIST_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("SENTDIST_DATA", raising=False)
    for words, said in MISTAKES:
        answer = CliRunner().invoke(app, words)
        assert said in answer.stderr and answer.exit_code == 2 and "Traceback" not in answer.output, answer.output
        assert len(answer.stderr.splitlines()) == 1 and ".;" not in answer.stderr and "Input should" not in answer.stderr, answer.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--version",), f"sentdist {version('sentdist')}, Python 3."),
        (("objectives",), "sum                a weighted sum of any of them"),
        (("tasks",), "transfer       mr, cr, subj"),
    ],
)
def test_what_there_is_is_listed(words: tuple[str, ...], said: str) -> None:
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0 and said in answer.output, answer.output
