"""The door for Python programs: what the quickstart shows runs as it stands there, and what is given reaches what answers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

import sentdist
from sentdist import DataError, EncoderError, RecipeError, SentdistError, StoreError
from sentdist.api.recipes import as_file
from sentdist.cli import app
from sentdist.inference.opening import data_root, store_root
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.relation_file import Relations, write_relations
from sentdist.recipe.stage import Json
from sentdist.report import paper_page
from sentdist.run import backend
from sentdist.stages import planned
from sentdist.store.searches import find_search
from sentdist.store.store import ArtifactStore
from tests.support.tiny_data import tiny_values, write_data
from tests.support.tiny_encoders import SENTENCES, WIDTH

ROOT = Path(__file__).parents[3]


def test_the_lines_of_the_quickstart_run(
    minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = (ROOT / "infra/docs/quickstart.md").read_text(encoding="utf-8").partition("\n## From Python\n")[2].partition("\n## ")[0]
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


def test_the_public_surface_is_what_the_package_names() -> None:
    for name in sentdist.__all__:
        public = getattr(sentdist, name)
        assert public.__doc__, name
        assert name in dir(sentdist)
    assert [name for name in dir(sentdist) if not name.startswith("__")] == sorted(sentdist.__all__), "what a notebook offers"
    with pytest.raises(AttributeError, match="'encode'"):
        _ = sentdist.encode  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def encoder(tiny_encoder_dir: Path) -> sentdist.Encoder:
    return sentdist.Encoder(tiny_encoder_dir)


def test_encode_gives_the_encoders_embeddings(encoder: sentdist.Encoder, tiny_encoder_dir: Path) -> None:
    expected = encode(SentenceEncoder.load(tiny_encoder_dir), SENTENCES)
    found = encoder.encode(SENTENCES)
    assert found.dtype == np.float32 and encoder.width == 32
    np.testing.assert_allclose(found, expected, atol=2e-6)
    np.testing.assert_allclose(encoder.encode(SENTENCES[1]), expected[1], atol=2e-6)  # another batch, other roundings
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(SENTENCES, normalize=True), axis=1), 1.0, atol=1e-6)
    short = sentdist.Encoder(f"{tiny_encoder_dir}?max_length=4&pooling=cls")
    assert short.encode(SENTENCES[0]).shape == (32,) and "cls" in repr(short)


Call = Callable[[sentdist.Encoder], object]


DEMO = ROOT / "rayjobs/recipes/demo.yaml"


MISTAKES: list[tuple[Call, type[SentdistError], str]] = [
    (lambda one: one.encode([]), DataError, "found no sentences"), (lambda one: one.encode(["a dog", " "]), DataError, r"encode: sentences\[1\]: found ' '"),
    (lambda one: one.encode({"a dog"}), DataError, "a set; "), (lambda one: one.encode(5), DataError, "an int; expected a list of sentences"),
    (lambda one: one.encode(pd.DataFrame({"text": ["a dog"]})), DataError, "a DataFrame"),
    (lambda one: one.encode(["a dog", 3]), DataError, r"encode: sentences\[1\]: found 3"), (lambda one: one.export("."), DataError, "an existing file"),
    (lambda one: sentdist.similarity(one, ["a", "b"], ["a", ""]), DataError, r"similarity: second\[1\]: found ''"),
    (lambda one: sentdist.similarity(object(), "a", "b"), DataError, "an object"),
    (lambda one: sentdist.similarity(one, iter("ab"), iter("abc")), DataError, "found 2 and 3 sentences"),
    (lambda one: sentdist.similarity(one, "a", "b", relations={"entailment": 1}), EncoderError, "found no relations"),
    (lambda one: sentdist.search(one, "a", ["b"] * 9_000 + [""]), DataError, r"search: corpus\[9000\]: found ''"),
    (lambda one: sentdist.search(one, "a dog", ["a cat"], embeddings=np.ones((2, 32))), DataError, r"shape \(2, 32\)"),
    (lambda one: sentdist.search(one, "a dog", ["a cat"], top=0), DataError, "search: depth: found 0"),
    (lambda one: sentdist.evaluate(one, "stss"), RecipeError, '"stss" is no task'), (lambda one: sentdist.compare(one, object()), DataError, "an object"),
    (lambda one: sentdist.compare(one, one, "scenes-sts"), DataError, "twice"), (lambda one: sentdist.plan(None), RecipeError, "a NoneType"),
    (lambda one: sentdist.Encoder("minilm-l6?pooling=Maen"), EncoderError, 'Did you mean "mean"'),
    (lambda one: sentdist.Encoder("minilm-l6?max_length=2"), EncoderError, "found 2; expected 3 to 256 tokens"),
    (lambda one: sentdist.Encoder("minilm-l6?max_length=x"), EncoderError, "max_length: found 'x'"), (lambda one: sentdist.Encoder(""), EncoderError, "no readable tokenizer"),
    (lambda one: sentdist.Encoder("minilm-l6?precision=fp8"), EncoderError, "one of fp32"), (lambda one: sentdist.Encoder(object()), DataError, "an object"),
    (lambda one: sentdist.Recipe.load({"name": "x"}), RecipeError, "recipe: "), (lambda one: sentdist.Recipe.load(DEMO, "seeds=[x]"), RecipeError, "seeds.0"),
    (lambda one: sentdist.plan(DEMO, overrides=["training.batch_sze=8"]), RecipeError, "batch_size"), (lambda one: sentdist.report(), DataError, "neither"),
    (lambda one: sentdist.report("unheard_of", store="nowhere"), StoreError, "expected a sweep"),
]  # fmt: skip


def test_a_mistake_is_reported_in_one_sentence(encoder: sentdist.Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call, kind, sentence in MISTAKES:
        with pytest.raises(kind, match=sentence):
            call(encoder)
    assert not list(tmp_path.rglob("*.parquet")), "reported before anything is encoded"


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
    trained = sentdist.Encoder(outcomes[2].encoder, store=store)
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
    search = find_search(ArtifactStore(store), "tiny")
    assert search is not None
    (finalist,) = search.finalists
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


RELATIONS = Relations(names=("entailment", "twin"), vectors=np.random.default_rng(0).normal(size=(2, WIDTH)).astype(np.float32))


WEIGHTS = {"entailment": 1.0, "twin": 0.5}


@pytest.fixture(scope="module")
def related(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> sentdist.Encoder:
    """The tiny encoder with two relations beside it."""
    folder = tmp_path_factory.mktemp("related") / "encoder"
    shutil.copytree(tiny_encoder_dir, folder)
    write_relations(folder, RELATIONS)
    return sentdist.Encoder(folder)


def _moved(related: sentdist.Encoder, heads: tuple[str, ...], tails: tuple[str, ...]) -> np.ndarray:
    """Of each head with each tail, by both relations."""
    first, second = (related.encode(list(texts)).astype(np.float64) for texts in (heads, tails))
    found = np.zeros((len(first), len(second)))
    for vector, weight in zip(RELATIONS.vectors, WEIGHTS.values(), strict=True):
        moved = first + vector
        cosines = moved @ second.T / np.linalg.norm(moved, axis=1)[:, None] / np.linalg.norm(second, axis=1)
        found += weight / sum(WEIGHTS.values()) * cosines
    return found


def test_pairs_are_scored_by_relations_in_the_direction_that_is_said(related: sentdist.Encoder) -> None:
    heads, tails = tuple(SENTENCES[:3]), tuple(SENTENCES[3:6])
    forward, backward = np.diag(_moved(related, heads, tails)), np.diag(_moved(related, tails, heads))
    assert (np.abs(forward - backward) > 1e-4).all()
    expected = np.maximum(forward, backward)
    np.testing.assert_allclose(sentdist.similarity(related, heads, tails, relations=WEIGHTS), expected, atol=2e-6)
    given = ["encode", related.loaded.use.checkpoint, "--pairs", heads[0], tails[0], "--relation", "entailment", "--relation", "twin=0.5"]
    assert float(CliRunner().invoke(app, given).stdout) == pytest.approx(expected[0], abs=2e-6), "as the command says"


def test_a_search_by_relations_has_their_scores(related: sentdist.Encoder) -> None:
    (hits,) = sentdist.search(related, [SENTENCES[0]], SENTENCES, top=4, relations=WEIGHTS)
    scores = _moved(related, (SENTENCES[0],), tuple(SENTENCES))[0]
    assert [hit.row for hit in hits] == np.argsort(-scores)[:4].tolist()
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(scores)[::-1][:4], atol=2e-6)


def test_embeddings_that_are_given_are_searched_in_and_not_made_again(related: sentdist.Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    turned = related.encode(list(SENTENCES))[::-1].copy()
    plain = sentdist.search(related, SENTENCES[0], SENTENCES, top=3)
    found = sentdist.search(related, SENTENCES[0], SENTENCES, top=3, embeddings=turned)
    assert [hit.row for hit in found] == [len(SENTENCES) - 1 - hit.row for hit in plain]
    assert [hit.text for hit in found] == [SENTENCES[hit.row] for hit in found]
    assert sentdist.search(related, [SENTENCES[0]], SENTENCES, top=3) == [plain], "of a list of one a list of lists"


def test_every_function_asks_the_store_and_data_that_are_given(
    tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENTDIST_STORE", str(tmp_path / "shells"))
    monkeypatch.setenv("SENTDIST_DATA", str(tmp_path / "shells"))
    assert (store_root(None), data_root(None)) == (str(tmp_path / "shells"), tmp_path / "shells")
    asked: list[tuple[object, object]] = []

    def note(*_: object, store: Any, data: object = None, **__: object) -> None:
        asked.append((getattr(store, "root", store), data))
        raise DataError(where="here", found="enough", expected="no more", remedy="None.")

    for name in ("planned_trials", "requested"):
        monkeypatch.setattr(planned, name, note)
    monkeypatch.setattr("sentdist.inference.planned_scores.planned_evaluation", note)
    (tmp_path / "data").mkdir()
    places = {"store": tmp_path / "mine", "data": tmp_path / "data"}
    encoder = sentdist.Encoder(tiny_encoder_dir)
    calls = (
        lambda: sentdist.plan(DEMO, **places),
        lambda: sentdist.run(DEMO, **places),
        lambda: sentdist.sweep(DEMO, **places),
        lambda: sentdist.evaluate(encoder, "scenes-sts", **places),
        lambda: sentdist.compare(encoder, tiny_encoder_dir, "scenes-sts", **places),
    )
    for call in calls:
        with pytest.raises(DataError, match="enough"):
            call()
    assert asked == [(str(tmp_path / "mine"), tmp_path / "data")] * len(calls)
    looked: list[str] = []
    monkeypatch.setattr(paper_page, "report_paper", lambda store, name: looked.append(store.root))
    sentdist.report(paper="rcl", store=tmp_path / "mine")
    assert looked == [str(tmp_path / "mine")]
    for call in (
        lambda: sentdist.Encoder("abcdef123456", store=tmp_path / "mine"),
        lambda: sentdist.evaluate("abcdef123456", "scenes-sts", **places),
        lambda: sentdist.compare(encoder, "abcdef123456", "scenes-sts", **places),
    ):
        with pytest.raises(StoreError, match=str(tmp_path / "mine")):
            call()


def test_a_grid_is_left_out_by_run_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built: list[tuple[int, object]] = []
    monkeypatch.setattr(backend, "build_recipe", lambda asked, *_, **named: built.append((len(asked.trials), named["print_line"])) or [])
    said: list[str] = []
    for call in (sentdist.run, sentdist.sweep):
        assert call(DEMO, store=tmp_path, print_line=said.append) == []
    assert built[0][0] < built[1][0] and {print_line for _, print_line in built} == {said.append}


def test_changes_beside_a_recipe_that_is_read_already_are_refused() -> None:
    recipe = sentdist.Recipe.load(DEMO)
    with pytest.raises(DataError, match="overrides beside a Recipe"):
        sentdist.plan(recipe, overrides=["seeds=[1]"])
    with pytest.raises(RecipeError, match="varies"):
        sentdist.sweep(DEMO, overrides=["methods.rcl.phis=[0.03]"])


PAIRS = [(f"a {who} {what} in the {where}", f"the {who} in the {where} {what}") for who in ("man", "dog", "cat", "child", "woman")
         for what in ("eats", "sings", "reads", "plays") for where in ("house", "garden", "street", "park")]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SENTDIST_STORE", "SENTDIST_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_rows_in_memory_train_an_encoder_with_a_verdict(tiny_encoder_dir: Path) -> None:
    lines: list[str] = []
    found = sentdist.train(PAIRS, encoder=f"{tiny_encoder_dir}?max_length=20", print_line=lines.append)
    assert found.num_seeds == 1 and (found.folder / "modules.json").is_file()
    assert found.verdict.outcome in ("better", "worse", "not shown to be better") and found.verdict.line in repr(found)
    assert any("56 train, 0 dev, 24 test" in line for line in lines), lines
    assert sentdist.Encoder(found.folder).encode(["a dog"]).shape[0] == 1
    again: list[str] = []
    assert sentdist.train(PAIRS, encoder=f"{tiny_encoder_dir}?max_length=20", print_line=again.append).folder == found.folder
    assert not any("to build" in line for line in again), "what the store has is not built again"


def test_rows_are_one_table_however_they_are_held() -> None:
    import datasets
    import pandas

    rows = [{"anchor": first, "positive": second} for first, second in PAIRS]
    files = {as_file(PAIRS), as_file(rows), as_file(pandas.DataFrame(rows)), as_file(datasets.Dataset.from_list(rows))}
    assert len(files) == 1 and as_file("mine.csv") == "mine.csv"
    assert as_file([("a", "b", 0.5)]) != as_file([("a", "b", "c")]), "a number is a score"
    for wrong in ([], 7, [("a", "b"), ("a",)]):
        with pytest.raises(DataError) as refused:
            as_file(wrong)
        assert refused.value.where == "rows"
