"""Recipes: read strictly, overridden by `--set`, refused with file, field, finding and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.errors import RecipeError
from sentdist.plan.recipe import Recipe, load_recipe, recipe_from_values
from sentdist.plan.stage import Json
from tests.support.planning import small_values, with_method

SMALL = """
name: small
corpus: {source: nli/triplets}
training: {batch_size: 32, learning_rate: 5e-5}
evaluation: {tasks: [stsb]}
methods:
  base: {}
  fine_tuned: {objective: {name: info_nce}}
"""


def _write(folder: Path, text: str = SMALL, name: str = "small.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def _refusal(values: dict[str, Json]) -> str:
    with pytest.raises(RecipeError) as caught:
        recipe_from_values(values, where="small.yaml")
    return str(caught.value)


def test_exponents_are_numbers(tmp_path: Path) -> None:
    for text, value in [("5e-5", 5e-5), ("5.0e-5", 5e-5), (".5e-4", 5e-5)]:
        recipe = load_recipe(_write(tmp_path, SMALL.replace("5e-5", text)))
        assert recipe.training.learning_rate == value


def test_words_stay_words(tmp_path: Path) -> None:
    for text in ["e5", "abc1e5"]:
        with pytest.raises(RecipeError, match=r"training\.learning_rate.*found '"):
            load_recipe(_write(tmp_path, SMALL.replace("5e-5", text)))


def test_overrides_apply_in_order_and_are_typed(tmp_path: Path) -> None:
    path = _write(tmp_path)
    recipe = load_recipe(path, ["training.batch_size=8", "training.batch_size=16", "training.learning_rate=1e-4", "seeds=[0, 1]"])
    assert (recipe.training.batch_size, recipe.training.learning_rate, recipe.seeds) == (16, 1e-4, (0, 1))
    assert load_recipe(path, ["encoder.pooling=cls"]).encoder.pooling == "cls"  # a section that the file leaves out
    assert load_recipe(path, ["methods.fine_tuned.stopping={patience: 5}"]).methods["fine_tuned"].stopping is not None


def test_an_override_reaches_one_axis_of_the_sweep(tmp_path: Path) -> None:
    path = _write(tmp_path, SMALL + "sweep: {training.batch_size: [32, 64], training.epochs: [1, 2]}\n")
    recipe = load_recipe(path, ["sweep.training.batch_size=[8]"])
    assert recipe.sweep == {"training.batch_size": (8,), "training.epochs": (1, 2)}


def test_a_wrong_override_is_refused(tmp_path: Path) -> None:
    for override, message in [
        ("training.batch_size", "no a.b=c"),
        ("training.bach_size=3", 'did you mean "batch_size"'),
        ("training.batch_size=[1", "a YAML value"),
        ("name.first=x", "expected a mapping there"),
        (
            "seeds[0]=3",
            'found "seeds[0]"; expected the items of a list by their numbers, from 0, between points. For the first one: seeds.0',
        ),
        ("methods.fine_tund.select=false", 'Did you mean "fine_tuned"'),
        ("methods={}", "found all methods at once; expected a field of one, such as methods.base.title"),
        ("encoder={checkpoint: *a}", "found undefined alias"),
    ]:
        with pytest.raises(RecipeError, match=r"small\.yaml|--set") as caught:
            load_recipe(_write(tmp_path), [override])
        assert message in str(caught.value)


def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path) -> None:
    for text, message in [
        (SMALL + "name: other\n", 'the key "name" stands twice'),
        (SMALL + "[a, b]: c\n", "valid YAML"),
        ("- a\n- b\n", "found a list; expected a recipe"),
        ("", "found an empty file; expected a recipe"),
    ]:
        with pytest.raises(RecipeError, match=r"small\.yaml") as caught:
            load_recipe(_write(tmp_path, text))
        assert message in str(caught.value)


def test_a_recipe_that_does_not_exist_names_a_near_one(tmp_path: Path) -> None:
    _write(tmp_path)
    with pytest.raises(RecipeError, match=r'Did you mean ".*small\.yaml"\?'):
        load_recipe(tmp_path / "smal.yaml")
    with pytest.raises(RecipeError, match="no UTF-8"):
        (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xfa")
        load_recipe(tmp_path / "binary.yaml")


def test_what_no_run_could_end_with_is_refused() -> None:
    for values, field in [
        ({"name": "n" * 101}, "name: "),
        ({"training": {"epochs": 10**18}}, "training.epochs: "),
        ({"training": {"learning_rate": 1e300}}, "training.learning_rate: "),
    ]:
        found = _refusal(small_values(**values))
        assert field in found and "expected at most" in found
        recipe_from_values(small_values(name="n" * 100, training={"epochs": 10_000}), where="here")


def test_several_workers_of_a_training_cannot_share_a_gpu() -> None:
    found = _refusal(small_values(runtime={"workers": 4, "gpus_per_worker": 0.25}))
    assert "runtime.gpus_per_worker: found 0.25 with 4 workers a training; expected a whole number" in found
    for runs in ({"workers": 4, "gpus_per_worker": 1}, {"gpus_per_worker": 0.25}):
        recipe_from_values(small_values(runtime=runs), where="here")


def test_a_misspelt_key_is_refused_with_the_near_one() -> None:
    assert 'evalution: unknown key; did you mean "evaluation"' in _refusal(small_values(evalution={"tasks": ["stsb"]}))
    assert 'training.warmup: unknown key; did you mean "warmup_fraction"' in _refusal(small_values(training={"warmup": 0.1}))
    assert 'runtime.wokers: unknown key; did you mean "workers"' in _refusal(small_values(runtime={"wokers": 2}))


def test_what_is_hardly_alike_is_not_what_was_meant() -> None:
    """`weight` of a method was answered by training.weight_decay, `shuffle` by schedule, `precision` of the encoder by revision."""
    for changes, said in [
        ({"methods": {"m": {"weight": 0.5}}}, 'did you mean "objective.terms"?'),
        ({"encoder": {"checkpoint": "minilm-l6", "precision": "bf16"}}, "known are checkpoint, revision"),
        ({"steps": 10}, "known are name"),
        ({"batch": 8}, 'did you mean "training.batch_size"?'),
    ]:
        assert f"unknown key; {said}" in _refusal(small_values(**changes))


def test_what_is_written_in_another_way_than_here_is_shown_how_it_is_written() -> None:
    """A value was wanted, or no such key known: the first recipe of one's own took many such rounds."""
    for changes, message in [
        ({"methods": {"m": {"objective": {"name": "rcl", "bank": "e"}}}}, 'objective.bank: unknown key; did you mean "methods.m.bank"?'),
        ({"methods": {"m": None}}, "methods.m: found nothing; expected fields with their values below it, or {} for the encoder as it is."),
        ({"encoder": "minilm-l6"}, "expected fields with their values below it, such as {checkpoint: minilm-l6}."),
        ({"sweep": {"training": {"epochs": [1, 2]}}}, "a list of values. A field below is named by points: {training.epochs: [1, 2]}."),
        ({"corpora": {"g": {"kind": "graded"}}}, "corpora.g.parts: found nothing; expected a list."),
        ({"methods": {"m": {"objective": {"name": "sum", "terms": [{}, {}]}}}}, "terms.0.objective: found nothing; expected fields with"),
    ]:
        assert message in _refusal(small_values(**changes))


SOURCES: Json = [{"source": "pairs/qqp", "splt": "train"}]
WEIGHTS: Json = {"relations": {"weights": {"duplicates": 1.0}, "direction": "one"}}


def test_a_misspelt_key_in_a_list_is_refused_with_the_near_one() -> None:
    for changes, message in [
        (
            {"methods": {"m": {"objective": {"name": "sum", "terms": [{"wieght": 0.1, "objective": {"name": "info_nce"}}] * 2}}}},
            'methods.m.objective.terms.0.wieght: unknown key; did you mean "weight"',
        ),
        (
            {"corpora": {"relations": {"kind": "relations", "relations": [{"name": "duplicates", "sources": SOURCES}]}}},
            'corpora.relations.relations.0.sources.0.splt: unknown key; did you mean "split"',
        ),
        ({"methods": {"m": {"view": WEIGHTS}}}, 'methods.m.view.relations.direction: unknown key; did you mean "directions"'),
    ]:
        assert message in _refusal(small_values(**changes))


def test_a_method_that_makes_no_sense_is_refused() -> None:
    for method, message in [
        ({"objective": {"name": "entropy"}}, "methods.new.objective.phi: found nothing"),
        ({"objective": {"name": "info_nce", "phi": 0.1}}, "methods.new.objective.phi: unknown key"),
        ({"objective": {"name": "rcl"}, "bank": "entropi"}, 'methods.new.bank: "entropi" is not one of'),
        ({"objective": {"name": "rcl"}, "bank": "entropy", "phis": []}, "methods.new.phis: found an empty set"),
        ({"objective": {"name": "rcl"}, "bank": "entropy", "phis": [float("inf")]}, "methods.new.phis.0"),
        ({"objective": {"name": "rcl"}, "bank": "entropy", "phis": ["high"]}, "methods.new.phis.0"),
        ({"objective": {"name": "info_nce"}, "bank": "entropy"}, "methods.new.bank: has no effect"),
        ({"objective": {"name": "info_nce"}, "phis": [0.1]}, "methods.new.phis: has no effect"),
        ({"training": {"epochs": 2}}, "methods.new.training: has no effect"),
        ({"start": "fine_tuned"}, "methods.new.start: has no effect on the untouched checkpoint"),
        ({"bank": "entropy"}, "methods.new.bank: has no effect"),
        ({"select": False}, "methods.new.select: has no effect"),
        ({"of": "fine_tuned", "encoder": {"pooling": "cls"}}, "methods.new.of: scores the encoder of another method; expected neither"),
        ({"objective": {"name": "info_nce"}, "regularizers": {"drophead": 1.0}}, "methods.new.regularizers.drophead"),
    ]:
        refusal = _refusal(with_method(new=method))
        assert message in refusal
        assert "small.yaml" in refusal


def test_a_value_out_of_its_range_is_refused() -> None:
    for changes, message in [
        (
            {"corpus": {"source": "nli/triplets", "columns": ["sent0"], "add_reversed": True}},
            "add_reversed: found one column; expected an anchor and a positive to exchange",
        ),
        ({"corpus": {"source": "nli/triplets", "columns": ["a", "b", "c", "d"]}}, "found 4 columns; expected two"),
        ({"evaluation": {"tasks": ["stsd"]}}, 'evaluation.tasks[0]: "stsd" is no task. Did you mean sts or stsb'),
        ({"evaluation": {"tasks": []}}, "evaluation.tasks"),
        ({"selection": {"task": "sts"}}, 'selection.task: "sts" chooses no checkpoint. Did you mean'),
        ({"training": {"lr": 1e-5}}, 'training.lr: unknown key; did you mean "learning_rate"?'),
        ({"runtime": {"device": "gpu"}}, 'expected one of auto, cpu, cuda. Did you mean "cuda"?'),
        (
            {"methods": {"new": {"objective": "info_nce"}}},
            "found 'info_nce'; expected fields with their values below it, such as {name: info_nce}.",
        ),
        ({"seeds": [1, 1]}, "expected each seed once"),
        ({"seeds": []}, "seeds"),
        ({"corpus": {"source": "nli/triplets", "columns": []}}, "found 0 columns"),
        ({"training": {"learning_rate": -1.0}}, "training.learning_rate"),
    ]:
        assert message in _refusal(small_values(**changes))


def test_two_rows_of_one_title_are_refused() -> None:
    """Reports take rows of one title for folds of one method."""
    objective: Json = {"name": "info_nce"}
    said = _refusal(with_method(twin={"title": "fine_tuned", "objective": objective}))
    assert 'methods.twin.title: found "fine_tuned", as methods.fine_tuned has it; expected a title for each row' in said
    unseen = with_method(twin={"title": "fine_tuned", "objective": objective, "reported": False})
    assert recipe_from_values(unseen, where="small.yaml").methods["twin"].title == "fine_tuned"


def test_what_decides_which_rows_test_is_neither_swept_nor_searched() -> None:
    """Scores of other rows do not compare, and stand in one column."""
    for path in ["corpus.held_out.seed", "corpus.group", "folds"]:
        corpora: Json = {"corpus": {"kind": "own", "file": "a.csv"}, "corpora": {"more": {"kind": "own", "file": "b.csv"}}}
        assert f"sweep.{path}: decides which rows are held out" in _refusal(small_values(sweep={path: [0, 1]}, **corpora))
        search: Json = {"suggest": "grid", "space": {path: {"choice": [0, 1]}}}
        assert f"{path}: " in _refusal(small_values(search=search, **corpora))


def test_training_rows_are_swept_and_searched() -> None:
    own: Json = {"kind": "own", "file": "a.csv"}
    for corpus, path in ((own, "corpus.limit"), (own, "corpus.limit_seed"), ({"source": "nli/triplets"}, "corpus.split")):
        assert path in recipe_from_values(small_values(corpus=corpus, sweep={path: [5, 6]}), where="small.yaml").sweep


def test_a_copy_of_a_recipe_is_taken_with_the_name_of_the_original(tmp_path: Path) -> None:
    """All people begin with one; its sweep takes the place of the other's, as after a change of the original."""
    _write(tmp_path)
    assert Recipe.load(_write(tmp_path, name="mine.yaml")).name == "small"


def test_a_shipped_recipe_is_taken_by_its_name_and_a_file_of_that_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (Recipe.load("demo").name, Recipe.load("cosent").name) == ("demo", "option_cosent")
    _write(tmp_path, name="demo")
    assert Recipe.load("demo").name == "small"
