"""What commands say of what was typed wrong: in plain words, with the thing to type instead."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.plan.tasks import TASKS
from sentdist.plan.tune_recipe import TUNABLE

DEMO = str(Path(__file__).parents[3] / "rayjobs/recipes/demo.yaml")
OWN = str(Path(__file__).parents[3] / "rayjobs/recipes/own.yaml")
SEARCH = str(Path(__file__).parents[3] / "rayjobs/recipes/search.yaml")
LATIN = "name: x\n# two\nabout: gr\u00fc\u00df\n".encode("latin1")
FILES = {
    "tab.yaml": b"name: x\n\tcorpus: 3\n",
    "twice.yaml": b"name: x\nseeds: [1]\nseeds: [2]\n",
    "list.yaml": b"- a\n",
    "empty.yaml": b"",
    "text.yaml": b"hello\n",
    "good.csv": b"question,answer\n1,2\n",
    "latin.yaml": LATIN,
    "latin.csv": b"Frage;Antwort\nGr\xf6\xdfe: ?;Gro\xdf: 1\n",
    "bad.jsonl": b'{"a": "one", "b": "two"}\n{a: 2}\n',
    "bad.json": b"hello",
    "bad.parquet": b"xxxx",
    "five.csv": b"a,b,c,d,e\nw x,x y,y z,z w,w w\n",
    "one.csv": b"question\nwhat is it\nwho is it\n",
    "nameless.yaml": b"corpus: {source: a}\nevaluation: {tasks: [sts]}\nmethods: {base: {}}\n",
}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "tab.yaml"), "tab.yaml: found line 2: a tab at its beginning; expected blanks there, by which YAML indents."),
        (("schema", "--out", "no/schema.json"), "--out no/schema.json: found no such folder; expected a file that can be written."),
        (("report", "any", "--out", "empty.yaml"), "--out empty.yaml: found a file of that name; expected a folder, which is made."),
        (("report", "any", "--out", "empty.yaml/a"), "--out empty.yaml/a: found empty.yaml, which is no folder; expected a folder"),
        (("plan", "twice.yaml"), 'found line 3: the key "seeds" stands twice; expected valid YAML. Correct the line named.'),
        (("plan", "list.yaml"), "found a list; expected a recipe: name, corpus, methods and evaluation"),
        (("plan", "empty.yaml"), "found an empty file; expected a recipe"),
        (("plan", "text.yaml"), "found plain text; expected a recipe"),
        (("plan", "good.csv"), "It looks like data: `sentdist tune good.csv`."),
        (("leaks", "latin.csv"), "It looks like data: `sentdist tune latin.csv`. A recipe takes it so: `… rayjobs/recipes/own.yaml --set"),
        (("plan", "latin.yaml"), "(line 3: bytes that are no UTF-8); expected a readable recipe. Save it as UTF-8 text"),
        (("plan", "nameless.yaml"), "nameless.yaml: name: found nothing; expected a name such as my_recipe. Nothing was started."),
        (("plan", DEMO, "--set", "runtime.workers=0"), "runtime.workers: found 0; expected 1 or more. Nothing was started."),
        (("plan", DEMO, "--set", "runtime.workers=[8,2]"), "runtime.workers: found [8, 2]; expected [fewest, most]. Nothing"),
        (("plan", DEMO, "--set", "training.batch_size=-4"), "training.batch_size: found -4; expected 2 or more. Nothing"),
        (("plan", DEMO, "--set", "training.batch_size="), "training.batch_size: found nothing; expected a whole number. Nothing"),
        (("plan", DEMO, "--set", "training.precision=fp16"), "expected one of fp32, tf32, bf16."),
        (("plan", DEMO, "--set", "seeds=0,1"), "seeds: found '0,1'; expected a list, such as [0,1]. Nothing"),
        (("plan", DEMO, "--set", "evaluation.tasks=sts"), "evaluation.tasks: found 'sts'; expected a list, such as [sts]."),
        (("plan", DEMO, "--set", "seeds=[]"), "seeds: found an empty list; expected at least one. Nothing"),
        (("plan", DEMO, "--set", "name=Demo!"), "name: found 'Demo!'; expected small letters, digits, - and _. Nothing"),
        (("plan", DEMO, "--set", "methods.rcl.objective.name=regression"), "temperature: unknown key; regression has loss, slope, threshold,"),
        (("plan", DEMO, "--set", "methods.rcl.bank=nobody"), 'methods.rcl.bank: "nobody" is not one of base, '),
        (("plan", DEMO, "--set", f"training.batch_size={'9' * 20}"), "above 64 bits; expected a YAML value. Give a number below 2^63."),
        (("plan", DEMO, "--set", "training.batch_size=["), "found 1 [ and 0 ]; expected a YAML value. Close the bracket: ]"),
        (("plan", DEMO, "--set", "evaluation.tasks=[stsbenchmark]"), '"stsbenchmark" is no task. Did you mean stsb? `sentdist tasks` lists'),
        (("evaluate", "minilm-l6", "--tasks", "stss"), 'sentdist evaluate: tasks: "stss" is no task. Did you mean sts or stsb'),
        (("evaluate", "minilm-l6", "--tasks", "mr-dev"), "tasks: found mr-dev, the accuracy on which a penalty is chosen"),
        (("evaluate", "minilm-l6", "--tasks", "scenes-sts", "--max-length", "5000"), "max_length: found 5,000, where minilm-l6 takes 256 tokens"),
        (("evaluate", "minilm-l6", "--tasks", "scenes-sts", "--pooling", "clss"), 'sentdist evaluate: pooling: found \'clss\'; expected one of mean'),
        (("plan", DEMO, "--set", "encoder.checkpoint=all-MiniLM-L6-v2"), "Did you mean minilm-l6 (packaged: sentence-transformers/all-MiniLM-L6-v2)?"),
        (("plan", DEMO, "--set", "runtime.workers=64"), "found 16 rows for 64 workers; expected at least two each"),
        (("plan", DEMO, "--on", "8xFOO"), "8xFOO"),
        (("plan", SEARCH, "--on", "8xH100"), "--on: found"),
        (("plan", SEARCH, "--trials"), "a search suggests its trials as it goes"),
        (("plan", DEMO, "--store", "good.csv"), "--store good.csv: found a file; expected a folder, which is made if it is not there. Name a folder."),
        (("models", "--store", "good.csv"), "--store good.csv: found a file"),
        (("store", "check", "trainz"), 'kind: found trainz; expected one of graded, groups'),
        (("store", "list", "nonsense"), "kind: found nonsense; expected one of graded, groups"),
        (("report",), "sentdist report: found neither a sweep nor --paper; expected one of the two. Run `sentdist sweep RECIPE` first."),
        (("report", "nosuch"), "expected a sweep that was started. Run `sentdist sweep RECIPE` first."),
        (("evaluate", "minilm-l6", "--tasks", "stsb", "--data", "nowhere"), "data root: found no folder nowhere"),
        (("evaluate", "minilm-l6", "--tasks", "sts=good.csv", "--data", "nowhere"), "data root: found no folder nowhere"),
        (("plan", DEMO, "--set", "evaluation.tasks=[sts=good.csv]", "--data", "other"), "good.csv there. It lies elsewhere: --data . and good, for sources are named"),
        (("encode", "minilm-l6", "good.csv", "--out", "x.npy"), "found columns question, answer; expected one that holds the sentences. Say --column question, or others."),
        (("tune", "good.csv", "--shape", "pair"), '--shape: found pair; expected one of pairs, triplets, graded, faq. Did you mean "pairs"?'),
        (("tune", "other"), "other: found a folder without a table; expected a table of texts"),
        (("tune", "five.csv"), "Name them in this order: --columns a,b (tune), or --set 'corpus.columns=[a, b]' (a recipe)."),
        (("tune", "one.csv"), "found one text a row, such as "),
        (("evaluate", "minilm-l6", "--tasks", "faqir", "--data", "other"), "expected retrieval/faqir/FAQIR*.xml there, as its authors released it."),
        (("tune", "bad.jsonl"), "bad.jsonl: line 2: found {a: 2}; expected a JSON object. Correct that line."),
        (("tune", "bad.json"), "(Expecting value in line 1); expected JSON, a list of objects."),
        (("tune", "bad.parquet"), "(no Parquet file, or a part of one: "),
        (("plan", OWN), "pairs.csv: found no such file; expected a table of texts"),
        (("plan", OWN), "to a recipe --set corpus.file=YOURS.csv."),
        (("evaluate", "minilm"), "encoder: found minilm, which is neither a folder nor a packaged encoder"),
        (("plan", DEMO, "--set", "encoder.checkpoint=owner/name", "--set", "encoder.revision=main"), "found owner/name at main, which may move"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_what_to_type(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SENTDIST_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("SENTDIST_DATA", raising=False)
    answer = CliRunner().invoke(app, words)
    assert said in answer.stderr and answer.exit_code == 2, answer.output
    assert len(answer.stderr.splitlines()) == 1 and ".;" not in answer.stderr and "Input should" not in answer.stderr, answer.stderr


def test_help_names_values_as_people_do() -> None:
    def reported(*words: str) -> str:
        return CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "160"}).output

    pages = {words: reported(*words) for words in (("run",), ("search",), ("similarity",), ("tune",), ("store", "list"), ("up",))}
    for page in pages.values():
        usage, options = page.splitlines()[0], page.partition("Options:")[2]
        assert not re.search(r"\[\[|\{[a-z]", usage) and not re.search(r"<[a-z]", options), page
    assert (
        "RECIPE" in pages[("run",)] and "NUMBER" in pages[("tune",)] and "PATH" in pages[("tune",)] and "KIND" in pages[("store", "list")]
    )
    assert all(method in pages[("tune",)] for method in TUNABLE), "names of methods stand nowhere else"


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


def test_recipes_are_reported_in_whole_sentences() -> None:
    lines = CliRunner().invoke(app, ["recipes"]).output.splitlines()
    assert len(lines) > 40 and not [line for line in lines if not line.endswith((".", ":", "?"))]


def test_two_recipes_are_not_one_command() -> None:
    answer = CliRunner().invoke(app, ["plan", DEMO, OWN])
    assert answer.exit_code == 2 and "one recipe a command" in " ".join(answer.output.split())


def test_a_column_of_scores_that_holds_words_is_reported(tmp_path: Path) -> None:
    who, what = ("dog", "cat", "man", "bird", "child", "fox"), ("runs", "eats", "sleeps", "sings", "reads", "walks")
    rows = "".join(f"a {one} {does},the {one} {does},high\n" for one in who for does in what)
    (tmp_path / "graded.csv").write_text(f"sentence1,sentence2,score\n{rows}")
    answer = CliRunner().invoke(
        app,
        [
            "plan",
            OWN,
            "--set",
            f"corpus.file={tmp_path / 'graded.csv'}",
            "--set",
            "training.batch_size=8",
            "--store",
            str(tmp_path / "store"),
        ],
    )
    assert "score not read (score holds no numbers: 'high')" in answer.output, answer.output


def test_each_task_stands_under_its_kind_and_nowhere_else() -> None:
    lines = CliRunner().invoke(app, ["tasks"]).output.partition("Groups:")[0].splitlines()
    found: dict[str, str] = {}
    for line in lines:
        kind, rest = line[:14].strip(), line[15:]
        if kind:
            last = kind
        else:
            for name in rest.split(", "):
                assert name not in found
                found[name] = last
    assert found == {name: card.kind for name, card in TASKS.items()}


def test_texts_of_the_table_of_objectives_stand_left() -> None:
    assert CliRunner().invoke(app, ["objectives", "--markdown"]).output.splitlines()[1] == "|:--|:--|:--|"
