"""The door for Python programs: what the README shows runs as it stands there, and each function answers as its command does."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

import sentdist
from sentdist import DataError, EncoderError, RecipeError, SentdistError, StoreError
from sentdist.cli import app
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.plan.stage import Json
from sentdist.store.searches import load_search
from sentdist.store.store import ArtifactStore
from tests.support.tiny_data import tiny_values, write_data
from tests.support.tiny_encoders import SENTENCES

ROOT = Path(__file__).parents[3]
HEAVY = ("torch", "ray", "numpy", "pydantic", "transformers", "mlflow", "pyarrow", "yaml")


def _loaded_by(script: str) -> str:
    script += f"\nimport sys; print(sorted(set(sys.modules) & set({HEAVY!r})))"
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_lines_of_the_readme_run(
    minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## From Python\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    (tmp_path / "rayjobs").symlink_to(ROOT / "rayjobs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SENTDIST_STORE", raising=False)
    names: dict[str, object] = {}
    for text in lines:
        exec(text, names)
    assert names["embeddings"].shape == (2, 384) and names["loss"].ndim == 0  # type: ignore[attr-defined]
    said = capsys.readouterr().out
    assert "A choir sings." in said and "# small" in said


def test_importing_the_package_loads_nothing() -> None:
    assert _loaded_by("import sentdist; dir(sentdist)") == "[]\n"


def test_planning_from_python_needs_no_torch() -> None:
    assert "torch" not in _loaded_by("import sentdist; sentdist.plan('rayjobs/recipes/demo.yaml', store='nowhere')")


def test_plan_and_report_are_called_and_imported_from() -> None:
    """Both are packages and functions, whatever is imported first."""
    script = (
        "import sentdist.plan.unroll as unrolled, sentdist.report.tables as brief, sentdist\n"
        "from sentdist import plan, report\n"
        "from sentdist.plan.recipe import Recipe\n"
        "print(unrolled.__name__, brief.__name__, sentdist.Recipe is Recipe, plan is sentdist.plan)\n"
        "print(len(plan('rayjobs/recipes/demo.yaml', store='nowhere').trials) > 3, sentdist.plan.unroll is unrolled)"
    )
    lines = _loaded_by(script).splitlines()
    assert lines[:2] == ["sentdist.plan.unroll sentdist.report.tables True True", "True True"]


def test_a_called_package_shows_what_it_calls() -> None:
    from sentdist import api

    for package, function in ((sentdist.plan, api.plan), (sentdist.report, api.report)):
        assert inspect.signature(package) == inspect.signature(function)
        assert package.__doc__ and f"sentdist.api.{function.__name__}" in package.__doc__


def test_the_public_surface_is_what_the_package_names() -> None:
    for name in sentdist.__all__:
        public = getattr(sentdist, name)
        assert public.__doc__, name
        assert name in dir(sentdist)
    assert [name for name in dir(sentdist) if not name.startswith("__")] == sorted(sentdist.__all__), "what a notebook offers"
    with pytest.raises(AttributeError, match="'encode'"):
        _ = sentdist.encode  # type: ignore[attr-defined]


def test_the_package_ships_its_types() -> None:
    package = ROOT / "sentdist"
    assert (package / "py.typed").exists()
    assert '"py.typed"' in (ROOT / "pyproject.toml").read_text()
    shown = ast.parse((package / "__init__.py").read_text(encoding="utf-8")).body
    assert "__getattr__" not in {getattr(one, "name", "") for one in shown}, "a type checker takes any misspelt name for an object"


@pytest.fixture(scope="module")
def encoder(tiny_encoder_dir: Path) -> sentdist.Encoder:
    return sentdist.Encoder.load(tiny_encoder_dir)


def test_encode_gives_the_encoders_embeddings(encoder: sentdist.Encoder, tiny_encoder_dir: Path) -> None:
    expected = encode(SentenceEncoder.load(tiny_encoder_dir), SENTENCES)
    found = encoder.encode(SENTENCES)
    assert found.dtype == np.float32 and encoder.width == 32
    np.testing.assert_allclose(found, expected, atol=2e-6)
    np.testing.assert_allclose(encoder.encode(SENTENCES[1]), expected[1], atol=2e-6)  # another batch, other roundings
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(SENTENCES, normalize=True), axis=1), 1.0, atol=1e-6)
    short = sentdist.Encoder.load(tiny_encoder_dir, max_length=4, pooling="cls")
    assert short.encode(SENTENCES[0]).shape == (32,) and "cls" in repr(short)


def test_similarity_is_that_of_the_command(encoder: sentdist.Encoder, tiny_encoder_dir: Path) -> None:
    score = sentdist.similarity(encoder, SENTENCES[0], SENTENCES[1])
    printed = CliRunner().invoke(app, ["similarity", str(tiny_encoder_dir), SENTENCES[0], SENTENCES[1]])
    assert f"{score:.6f}" == printed.output.strip()
    scores = sentdist.similarity(tiny_encoder_dir, SENTENCES[:2], SENTENCES[1:3])
    assert scores.shape == (2,) and scores[0] == pytest.approx(score, abs=1e-6)


def test_search_finds_what_numpy_finds(encoder: sentdist.Encoder) -> None:
    unit = encoder.encode(SENTENCES, normalize=True)
    cosines = unit[:2] @ unit.T
    hits = sentdist.search(encoder, SENTENCES[:2], SENTENCES, top=3)
    for row, found in zip(cosines, hits, strict=True):
        assert [hit.row for hit in found] == np.argsort(-row, kind="stable")[:3].tolist()
        np.testing.assert_allclose([hit.score for hit in found], np.sort(row)[::-1][:3], atol=2e-6)
        assert [hit.text for hit in found] == [SENTENCES[hit.row] for hit in found]
    again = sentdist.search(encoder, SENTENCES[0], SENTENCES, top=3, embeddings=encoder.encode(SENTENCES))
    assert [hit.row for hit in again] == [hit.row for hit in hits[0]]
    assert len(sentdist.search(encoder, SENTENCES[0], SENTENCES[:2])) == 2


@pytest.mark.parametrize(
    ("call", "kind", "sentence"),
    [
        (lambda encoder: encoder.encode([]), DataError, "found a list of 0"),
        (lambda encoder: encoder.encode(["a dog", " "]), DataError, r"encode: sentences\[1\]: found ' '; expected .* one visible character"),
        (lambda encoder: sentdist.similarity(encoder, ["a", "b"], ["a", ""]), DataError, r"similarity: second\[1\]: found ''"),
        (lambda encoder: sentdist.search(encoder, "a", ["b"] * 9_000 + [""]), DataError, r"search: corpus\[9000\]: found ''"),
        (lambda encoder: encoder.encode({"a dog": 1}), DataError, "found a dict; expected a list of sentences"),
        (lambda encoder: encoder.encode({"a dog", "a cat"}), DataError, r"found a set; .* Give them in an order, which embeddings keep"),
        (lambda encoder: encoder.encode(5), DataError, "found an int; expected a list of sentences"),
        (lambda encoder: encoder.encode("a dog", normalize="no"), DataError, "encode: normalize: found 'no'; expected True or False"),
        (lambda encoder: sentdist.Encoder.load("minilm-l6", pooling="Maen"), EncoderError, 'Did you mean "mean"'),
        (lambda encoder: encoder.encode(pd.DataFrame({"text": ["a dog"]})), DataError, r"a DataFrame.* Give a column of it: table\['text'\]"),
        (lambda encoder: sentdist.Encoder.load("minilm-l6", max_length=2), EncoderError, "found 2; expected 3 to 256 tokens"),
        (lambda encoder: sentdist.Encoder.load("minilm-l6", max_length=0), DataError, "max_length: found 0; expected a whole number"),
        (lambda encoder: sentdist.Encoder.load(""), DataError, "encoder: found no name"),
        (lambda encoder: sentdist.similarity(object(), "a", "b"), DataError, "found an object; expected a sentdist.Encoder"),
        (lambda encoder: sentdist.Recipe.load({"name": "x"}), RecipeError, "recipe: "),
        (lambda encoder: sentdist.plan(None), RecipeError, "recipe: found a NoneType; expected a Recipe"),
        (lambda encoder: sentdist.Recipe.load(ROOT / "rayjobs/recipes/demo.yaml", "seeds=[x]"), RecipeError, "seeds.0: found 'x'"),
        (lambda encoder: encoder.encode(["a dog", 3]), DataError, r"encode: sentences\[1\]: found 3, of type int"),
        (lambda encoder: sentdist.similarity(encoder, ["a"], ["a", "b"]), DataError, "a list of 1 and a list of 2"),
        (lambda encoder: sentdist.similarity(encoder, iter("ab"), iter("abc")), DataError, "a list of 2 and a list of 3"),
        (lambda encoder: sentdist.similarity(encoder, "a", ["a"]), DataError, "one sentence and a list of 1"),
        (lambda encoder: sentdist.similarity(encoder, "a", "b", relations={"entailment": 1}), EncoderError, "no relations beside it"),
        (lambda encoder: sentdist.similarity(encoder, "a", "b", directions="foo"), DataError, "found 'foo'; expected one of one, max_both"),
        (lambda encoder: sentdist.search(encoder, "a dog", "corpus.txt"), DataError, "expected a list of sentences"),
        (lambda encoder: sentdist.search(encoder, "a dog", ["a cat"], embeddings=np.ones((2, 32))), DataError, r"shape \(2, 32\)"),
        (lambda encoder: sentdist.search(encoder, "a dog", ["a cat"], top=0), DataError, "search: top: found 0; expected a whole number"),
        (lambda encoder: sentdist.search(encoder, "a dog", ["a cat"], top=1.5), DataError, "search: top: found 1.5"),
        (lambda encoder: sentdist.evaluate(encoder, None), DataError, "evaluate: tasks: found a NoneType; expected a name or several"),
        (lambda encoder: sentdist.evaluate(encoder, []), DataError, "evaluate: tasks: found an empty list"),
        (lambda encoder: sentdist.compare(encoder, encoder, "scenes-sts"), DataError, "twice; expected two encoders"),
        (lambda encoder: sentdist.compare(encoder, object()), DataError, "found an object; expected a sentdist.Encoder"),
        (lambda encoder: encoder.export("."), DataError, "there already"),
        (lambda encoder: sentdist.Encoder.load("./nowhere"), EncoderError, "found no such folder"),
        (lambda encoder: sentdist.Encoder.load("minilm-l6", precision=None), DataError, "found None; expected one of fp32, tf32, bf16"),
        (lambda encoder: sentdist.Encoder("minilm-l6"), DataError, r"Encoder: found a str; .* sentdist.Encoder.load\('minilm-l6'\)"),
        (lambda encoder: sentdist.Encoder.load("minilm-l6", precision="fp8"), DataError, "expected one of fp32, tf32, bf16"),
        (lambda encoder: sentdist.evaluate(encoder, "stss"), RecipeError, '"stss" is no task'),
        (lambda encoder: sentdist.plan("demmo.yaml"), RecipeError, "expected a readable recipe"),
        (lambda encoder: sentdist.plan(ROOT / "rayjobs/recipes/demo.yaml", overrides=["training.batch_sze=8"]), RecipeError, "batch_size"),
        (lambda encoder: sentdist.report("unheard_of", store="nowhere"), StoreError, "expected a sweep that was started"),
        (lambda encoder: sentdist.report(), DataError, "found neither"),
        (lambda encoder: sentdist.report(Path("own.yaml")), DataError, r"report: found a path.* Give sentdist.Recipe.load\('own.yaml'\)"),
        (lambda encoder: sentdist.report("recipes/own.yaml"), DataError, r"report: found a path"),
        (lambda encoder: sentdist.report([1]), DataError, "report: found a list; expected a Recipe, or its name"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_in_one_sentence(
    call: object, kind: type[SentdistError], sentence: str, encoder: sentdist.Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=sentence):
        call(encoder)  # type: ignore[operator]


def test_a_recipe_is_planned_run_reported_and_its_encoder_scored(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    data, store, path = write_data(tmp_path / "data"), tmp_path / "store", tmp_path / "tiny.yaml"
    values = tiny_values(tiny_encoder_dir, sweep={"methods.fine_tuned.objective.temperature": [0.05, 0.2]})
    path.write_text(yaml.safe_dump(values))
    recipe = sentdist.Recipe.load(path, ["seeds=[3]"])
    plan = sentdist.plan(recipe, store=store, data=data)
    assert len(plan.trials) == 4 and not store.exists()
    assert repr(plan) == f"Plan('tiny', 4 trials, {len(plan.stages)} stages)"
    assert repr(recipe) == "Recipe('tiny', 4 methods, 1 seed, varied: methods.fine_tuned.objective.temperature)", "a notebook showed pages"
    assert sentdist.Recipe.load(values, "seeds=[3]") == recipe and "seeds" not in values
    said: list[str] = []
    outcomes = sentdist.run(recipe, store=store, data=data, print_line=said.append)
    assert [(outcome.method, outcome.seed) for outcome in outcomes] == [("base", None), ("fine_tuned", 3), ("rcl", 3)]
    assert any("done in" in line for line in said)
    swept = sentdist.sweep(recipe, store=store, data=data, print_line=said.append)
    assert [outcome.params for outcome in swept if outcome.method == "fine_tuned"] == [
        {"methods.fine_tuned.objective.temperature": 0.05},
        {"methods.fine_tuned.objective.temperature": 0.2},
    ]
    assert outcomes[2] == swept[-1], "what was built is found again"
    report = sentdist.report(recipe, store=store)
    assert f"{outcomes[1].scores['stsb']:.2f}" in report.markdown
    assert len(repr(report)) < 1_000 < len(report.html), "a notebook shows the last line of a cell"
    page = report.write(str(tmp_path / "pages" / "tiny"))
    assert page.read_text(encoding="utf-8") == report.html and page.parent == tmp_path / "pages" / "tiny"
    assert outcomes[0].encoder is None and outcomes[2].encoder is not None
    trained = sentdist.Encoder.load(outcomes[2].encoder, store=store)
    scores = sentdist.evaluate(trained, ["stsb"], store=store, data=data)
    assert scores["stsb"] == pytest.approx(outcomes[2].scores["stsb"], abs=1e-4)
    found = sentdist.compare(trained, tiny_encoder_dir, "stsb", store=store, data=data)
    assert repr(found) == f"Compared({len(found.lines)} line: {found.sentence})"
    (line,) = found.lines
    base = outcomes[0].scores["stsb"]
    assert (line.task, line.ours) == ("stsb", scores["stsb"]) and line.theirs == pytest.approx(base, abs=1e-4)
    assert line.difference.difference == pytest.approx(line.ours - line.theirs)
    assert line.difference.low < line.difference.difference < line.difference.high
    assert outcomes[2].encoder in found.sentence and str(tiny_encoder_dir) in found.sentence


def test_an_encoder_is_exported_with_the_length_that_it_was_loaded_with(
    encoder: sentdist.Encoder, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    text = "two cats sleep on a red mat"
    encoder.export(tmp_path / "whole")
    np.testing.assert_allclose(sentdist.Encoder.load(tmp_path / "whole").encode(text), encoder.encode(text), rtol=1e-6)
    assert str(tiny_encoder_dir) not in (tmp_path / "whole" / "README.md").read_text()
    short = sentdist.Encoder.load(tiny_encoder_dir, max_length=4)
    short.export(tmp_path / "short")
    again = sentdist.Encoder.load(tmp_path / "short")
    np.testing.assert_allclose(again.encode(text), short.encode(text), rtol=1e-6)
    assert not np.allclose(again.encode(text), encoder.encode(text))
    sentdist.Encoder.load(tmp_path / "whole", max_length=4).export(tmp_path / "copied")
    np.testing.assert_allclose(sentdist.Encoder.load(tmp_path / "copied").encode(text), short.encode(text), rtol=1e-6)


def test_files_of_the_current_folder_are_scored_by_their_names(
    encoder: sentdist.Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SENTDIST_DATA", raising=False)
    Path("pairs.tsv").write_text("sentence1\tsentence2\tscore\na dog runs\ta dog\t4\na cat\ta man\t1\ntwo cats\ta red mat\t2\n")
    here = sentdist.evaluate(encoder, "sts=./pairs.tsv")
    assert here == sentdist.evaluate(encoder, f"sts={tmp_path}/pairs.tsv") and here["sts-pairs-tsv"] is not None


def test_an_encoder_loaded_by_a_relative_path_stays_of_use_in_another_folder(
    tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_encoder_dir.parent)
    encoder = sentdist.Encoder.load(tiny_encoder_dir.name)
    monkeypatch.chdir(tmp_path)
    assert sentdist.evaluate(encoder, "scenes-sts", store="s") == sentdist.evaluate(tiny_encoder_dir, "scenes-sts", store="s")
    encoder.export("copy")
    np.testing.assert_allclose(sentdist.Encoder.load("copy").encode("a dog"), encoder.encode("a dog"), rtol=1e-6)


def test_a_tilde_is_the_home_folder(encoder: sentdist.Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no shell that says so, and a folder of that name is nobody's wish."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SENTDIST_DATA", raising=False)
    (tmp_path / "demo.yaml").write_bytes((ROOT / "rayjobs/recipes/demo.yaml").read_bytes())
    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\tscore\na dog runs\ta dog\t4\na cat\ta man\t1\ntwo cats\ta red mat\t2\n")
    assert sentdist.Recipe.load("~/demo.yaml").name == "demo"
    assert "sts-pairs-tsv" in sentdist.evaluate(encoder, "sts=pairs.tsv", data="~", store="~/store")
    encoder.export("~/copy")
    assert sentdist.Encoder.load("~/copy").width == encoder.width and (tmp_path / "copy").is_dir()


def test_a_search_is_carried_out_as_its_command_does(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    """On one store, so that what the other has built is seen to be the same."""
    values = tiny_values(tiny_encoder_dir, seeds=[0, 1]) | {
        "methods": {"base": {}, "fine_tuned": {"objective": {"name": "info_nce"}}},
        "search": {"suggest": "random", "samples": 2, "space": {"training.learning_rate": {"log": [1e-4, 1e-2]}}},
        "runtime": {"engine": "torch"},
    }
    recipe, store, data = _written(tmp_path, values), tmp_path / "store", write_data(tmp_path / "data")
    with pytest.raises(RecipeError, match="expected a recipe without one"):
        sentdist.plan(recipe, store=store, data=data)
    outcomes = sentdist.sweep(recipe, store=store, data=data, print_line=lambda line: None)
    (finalist,) = load_search(ArtifactStore(store), "tiny").finalists
    assert [(one.method, one.seed, dict(one.params)) for one in outcomes] == [
        ("base", None, {}), *(("fine_tuned", seed, finalist.suggestion) for seed in (0, 1)),
    ]  # fmt: skip
    built = {one.key for one in ArtifactStore(store).artifacts()}
    done = CliRunner().invoke(app, ["sweep", str(recipe), "--local", "--store", str(store), "--data", str(data)])
    assert done.exit_code == 0 and {one.key for one in ArtifactStore(store).artifacts()} == built, done.output


def test_fresh_seeds_confirm_what_dev_chose(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    values = tiny_values(tiny_encoder_dir, seeds=[3], confirm_seeds=2) | {
        "methods": {"base": {}, "fine_tuned": {"objective": {"name": "info_nce"}}},
        "baseline": "base",
    }
    place, recipe = tmp_path / "store", sentdist.Recipe.load(_written(tmp_path, values))
    outcomes = sentdist.sweep(recipe, store=place, data=write_data(tmp_path / "data"), print_line=lambda line: None)
    assert [(one.method, one.seed) for one in outcomes] == [
        ("base", None), ("fine_tuned", 3), ("base", None), ("fine_tuned", 4), ("fine_tuned", 5),
    ]  # fmt: skip


def _written(folder: Path, values: Mapping[str, Json]) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(dict(values)))
    return path


def test_one_encoder_twice_is_reported_before_anything_is_encoded(
    encoder: sentdist.Encoder, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="twice; expected two encoders"):
        sentdist.compare(encoder, tiny_encoder_dir, "scenes-sts", store=tmp_path / "store")
    assert not list(tmp_path.rglob("*.parquet"))
