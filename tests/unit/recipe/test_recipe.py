"""Recipes as files: read strictly, overridden by `--set`, and their JSON schema; what is refused: test_refusals.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.errors import RecipeError
from sentdist.frozen import Frozen
from sentdist.recipe.recipe import Recipe, load_recipe, recipe_from_values
from sentdist.recipe.schema import field_comments, keep_schema_of, recipe_schema
from sentdist.recipe.stage import Json
from sentdist.recipe.wording import parsed_yaml
from tests.support.planning import RECIPES, plan_of, small_values, with_method

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


def test_exponents_are_numbers_and_words_stay_words(tmp_path: Path) -> None:
    for text, value in [("5e-5", 5e-5), ("5.0e-5", 5e-5), ("1e5", 1e5), ("+2E-05", 2e-5), (".5e-4", 5e-5)]:
        assert load_recipe(_write(tmp_path, SMALL.replace("5e-5", text))).training.learning_rate == value
    for text in ["e5", "1e", "abc1e5"]:
        with pytest.raises(RecipeError, match=r"training\.learning_rate.*found '"):
            load_recipe(_write(tmp_path, SMALL.replace("5e-5", text)))


def test_overrides_apply_in_order_and_are_typed(tmp_path: Path) -> None:
    path = _write(tmp_path, SMALL + "sweep: {training.batch_size: [32, 64], training.epochs: [1, 2]}\n")
    recipe = load_recipe(path, ["training.batch_size=8", "training.batch_size=16", "training.learning_rate=1e-4", "seeds=[0, 1]"])
    assert (recipe.training.batch_size, recipe.training.learning_rate, recipe.seeds) == (16, 1e-4, (0, 1))
    assert load_recipe(path, ["encoder.pooling=cls"]).encoder.pooling == "cls", "a section that the file leaves out"
    assert load_recipe(path, ["methods.fine_tuned.stopping={patience: 5}"]).methods["fine_tuned"].stopping is not None
    assert load_recipe(path, ["sweep.training.batch_size=[8]"]).sweep == {"training.batch_size": (8,), "training.epochs": (1, 2)}


def test_a_wrong_override_is_refused(tmp_path: Path) -> None:
    for override, message in [
        ("training.batch_size", "no a.b=c"),
        ("training.bach_size=3", 'did you mean "batch_size"'),
        ("training.batch_size=[1", "a YAML value"),
        ("name.first=x", "expected a mapping or a list"),
        ("seeds[0]=3", "unknown key"),
        ("methods.fine_tund.select=false", 'Did you mean "fine_tuned"'),
        ("encoder={checkpoint: *a}", "found undefined alias"),
    ]:
        with pytest.raises(RecipeError, match=r"small\.yaml|--set") as caught:
            load_recipe(_write(tmp_path), [override])
        assert message in str(caught.value)


def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path) -> None:
    for text, message in [
        (SMALL + "name: other\n", 'the key "name" occurs twice'),
        (SMALL + "[a, b]: c\n", "valid YAML"),
        ("- a\n- b\n", "found ['a', 'b']; expected a readable recipe"),
        ("", "found None"),
    ]:
        with pytest.raises(RecipeError, match=r"small\.yaml") as caught:
            load_recipe(_write(tmp_path, text))
        assert message in str(caught.value)
    with pytest.raises(RecipeError, match=r'Did you mean ".*small\.yaml"\?'):
        load_recipe(tmp_path / "smal.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(RecipeError, match="not UTF-8"):
        load_recipe(tmp_path / "binary.yaml")


def test_what_is_within_its_limits_is_taken() -> None:
    objective: Json = {"name": "info_nce"}
    unseen = with_method(twin={"title": "fine_tuned", "objective": objective, "reported": False})
    assert recipe_from_values(unseen, where="small.yaml").methods["twin"].title == "fine_tuned"
    for changes in ({"name": "n" * 100, "training": {"epochs": 10_000}}, {"runtime": {"gpus_per_worker": 0.25}}):
        recipe_from_values(small_values(**changes), where="here")
    own: Json = {"kind": "own", "file": "a.csv"}
    for corpus, path in ((own, "corpus.limit"), (own, "corpus.limit_seed"), ({"source": "nli/triplets"}, "corpus.split")):
        assert path in recipe_from_values(small_values(corpus=corpus, sweep={path: [5, 6]}), where="small.yaml").sweep


def test_a_shipped_recipe_is_taken_by_its_name_and_a_file_of_that_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (Recipe.load("demo").name, Recipe.load("cosent").name) == ("demo", "option_cosent")
    _write(tmp_path, name="demo")
    assert Recipe.load("demo").name == "small"
    _write(tmp_path, name="rcl_grids.yaml")
    assert f'"{RECIPES / "sweeps" / "rcl_grid.yaml"}"' in CliRunner().invoke(app, ["plan", "rcl_grid.yml"]).output
    assert '"rcl_grids.yaml"' in CliRunner().invoke(app, ["plan", "rcl_grdis"]).output


HOSTILE = [
    "a: &a [*a]",
    "limit: " + "9" * 9_000,
    "about: 2020-13-45",
    "a: !!python/object/apply:os.system [ls]",
    "name: a\0b",
    "a: 1\na: 2",
]


def test_yaml_that_is_no_plain_value_is_refused_in_a_line(tmp_path: Path) -> None:
    for text in HOSTILE:
        for file, overrides in ((_write(tmp_path, text, "a.yaml"), []), (_write(tmp_path), [f"sweep={text}"])):
            with pytest.raises(RecipeError) as caught:
                load_recipe(file, overrides)
            assert len(str(caught.value)) < 1200 and len(str(caught.value).splitlines()) == 1


def test_what_people_write_is_read_as_before() -> None:
    values = parsed_yaml("base: &base {lr: 5e-5, n: 1_000}\nlist: [*base, *base]", where="w", expected="e", remedy="r")
    assert values == {"base": {"lr": 5e-5, "n": 1000}, "list": [{"lr": 5e-5, "n": 1000}] * 2}


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    Draft202012Validator.check_schema(recipe_schema())
    return Draft202012Validator(recipe_schema())


def test_what_the_code_says_beside_a_field_is_what_an_editor_shows() -> None:
    class Base(Frozen):
        """A value."""

        rate: float = 0.1  # of the optimizer, a step
        name: str = "#1"

    class Derived(Base):
        # How far it goes:
        # a number from 0 up.
        length: int = 3

    assert field_comments(Derived) == {
        "rate": "Of the optimizer, a step",
        "length": "How far it goes: a number from 0 up.",
    }


def test_planning_writes_no_other_file(tmp_path: Path) -> None:
    for named in ["https://example.org/recipe.schema.json", "my.schema.json", "nowhere/recipe.schema.json"]:
        (tmp_path / "my.schema.json").write_text("mine")
        recipe = tmp_path / "demo.yaml"
        recipe.write_text(f"# yaml-language-server: $schema={named}\n")
        keep_schema_of(recipe)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.yaml", "my.schema.json"]
        assert (tmp_path / "my.schema.json").read_text() == "mine"


CORPORA: Json = {
    "graded": {"kind": "graded", "parts": [{"source": "sts/stsb", "scale": "zero_to_five"}]},
    "groups": {"kind": "groups", "parts": [{"source": "nli/snli"}], "num_positives": 2, "num_negatives": 2},
    "group": {"kind": "groups", "parts": [{"source": "nli/snli"}], "num_positives": 1, "num_negatives": 2},
    "pairs": {"source": "nli/pairs", "columns": ["one", "two"]},
}

VALUES = """
name: Two Words | name
seeds: [1, 1] | expected each value once
methods: {} | methods
baseline: bass | Did you mean "base"?
headline: rcll, baseline: base | headline: "rcll" is not one of
encoder: minilm-l6 | encoder: found 'minilm-l6'
folds: {} | a retrieval corpus
training: {epochs: 1000000000000000000} | training.epochs: found
training: {learning_rate: -1.0} | training.learning_rate
training: {learning_rate: true} | training.learning_rate: found true; expected a number
training: {batch_size: 1} | training.batch_size
training: {batch_size: 20000} | 20000 rows per batch, 10000 in the corpus
training: {batch_size: 4}, runtime: {workers: 4} | 4 rows for 4 workers
runtime: {workers: 4, gpus_per_worker: 0.25} | runtime.gpus_per_worker: found 0.25 with 4 workers
runtime: {device: gpu} | Did you mean "cuda"?
"""

UNKNOWN_KEYS = """
evalution: {tasks: [stsb]} | evalution: unknown key; did you mean "evaluation"
lr: 1e-5 | lr: unknown key; known are name
steps: 10 | unknown key; known are name
encoder: {checkpoint: minilm-l6, precision: bf16} | known are checkpoint, revision
evaluation: {tasks: [stsb], links: {poool: 5}} | evaluation.links.poool: unknown key; did you mean "pool"
corpora: {g: {kind: graded, source: sts/stsb}} | corpora.g.source: unknown key; known are kind, parts
corpora: {g: {kind: graded, parts: [{source: sts/stsb, clumns: [a, b]}]}} | corpora.g.parts.0.clumns: unknown key; did you mean "columns"
new: {weight: 0.5} | methods.new.weight: unknown key
new: {objective: {name: rcl, bank: entropy}} | methods.new.objective.bank: unknown key
new: {view: {relations: {weights: {duplicates: 1.0}, direction: one}}} | view.relations.direction: unknown key; did you mean "directions"
"""

TASKS = """
evaluation: {tasks: [stsd]} | "stsd" is no task
evaluation: {tasks: []} | evaluation.tasks
evaluation: {tasks: [own-dev]} | own names the held-out rows
evaluation: {tasks: [mr-dev]} | Use mr; mr-dev is for selection.task
selection: {task: transfer} | cannot choose checkpoints
selection: {task: stsb-dev+sickr-dve} | Did you mean "sickr-dev"?
selection: {task: stsb-dev+stsb-dev} | expected each task once
selection: {task: stsb-dev+stackfaq} | found tasks of retrieval and of sts
selection: {task: transfer-dev, limit: 40} | selection.limit: found 40 beside mr-dev
selection: {task: "clustering=my/data"} | cannot choose checkpoints
selection: {task: "classification=my/data"} | sts=SOURCE
selection: {task: "sts=my/pairs+retrieval=my/bank"} | expected one kind
"""

CORPUS = """
corpus: {source: nli/triplets, columns: [sent0], add_reversed: true} | add_reversed: found one column
corpus: {source: nli/triplets, columns: [a, b, c, d]} | found 4 columns
corpus: {source: nli/triplets, document_field: question} | corpus.document_field: found a field without effect on rows
corpus: {source: retrieval/stackfaq, split: null, columns: [a, b]}, folds: {num: 5}, corpora: {} | corpus.columns
corpus: {kind: own, file: a.csv, encoding: latein} | corpus.encoding: found 'latein'
corpora: {short: {like: corpsu}} | Did you mean "corpus"
corpora: {one: {like: two}, two: {like: one}} | found one → two → one; expected no cycle
corpora: {one: {like: corpus, relations: 1.5}} | corpora.one.relations: unknown key
corpora: {short: {like: corpus}}, sweep: {corpus.limit: [5, 6]} | would keep their values
corpora: {g: {kind: groups, parts: [{source: nli/snli}], num_positives: 1, num_negatives: 1, augmentation: {name: paraphrases}}} | checkpoint
corpora: {g: {kind: groups, parts: [{source: nli/snli}], num_positives: 1, num_negatives: 1, augmentation: {name: synonym}}} | synonyms
"""

SWEEPS = """
sweep: {training: {epochs: [1, 2]}} | sweep.training: found
sweep: {training.batch_size: []} | at least 1 item
sweep: {training.bach_size: [32, 64]} | did you mean "batch_size"
sweep: {runtime.log_every: [1, 2]} | 2 values that lead to the same stages
sweep: {methods.rlc.select: [true, false]} | Did you mean "rcl"
sweep: {methods.rcl.phis: [[], [0.01]]} | at least 1 item
sweep: {corpus.held_out.seed: [0, 1]}, corpus: {kind: own, file: a.csv} | decides which rows are held out
sweep: {corpus.source: [retrieval/a]}, corpus: {source: retrieval/a, split: null}, folds: {num: 3} | decides which rows are held out
"""

METHODS = """
methods: {m: null} | methods.m: found nothing
methods: {a: {objective: {name: info_nce}, start: b}, b: {objective: {name: info_nce}, start: a}} | expected no cycle
new: {objective: {name: entropi, phi: 0.1}} | Did you mean "entropy"?
new: {objective: {name: entropy}} | methods.new.objective.phi: Field required
new: {objective: {name: info_nce, temperature: 0}} | methods.new.objective.temperature
new: {objective: {info_nce: {temperature: 0.05}}} | methods.new.objective: found
new: {objective: {name: rcl}} | methods.new.bank: found nothing
new: {objective: {name: rcl}, bank: entropi} | methods.new.bank: "entropi" is not one of
new: {objective: {name: rcl}, bank: fine_tuned, phis: [0.01]} | a bank whose objective has a phi
new: {objective: {name: rcl}, bank: entropy, phis: []} | at least 1 item
new: {objective: {name: rcl}, bank: entropy, phis: [0.1, 0.1]} | expected each value once
new: {objective: {name: rcl}, bank: entropy, phis: [high]} | methods.new.phis.0
new: {objective: {name: info_nce}, bank: entropy} | methods.new.bank: has no effect
new: {objective: {name: info_nce}, phis: [0.1]} | methods.new.phis: has no effect
new: {objective: {name: info_nce}, bank_dtype: float32} | methods.new.bank_dtype: has no effect
new: {objective: {name: info_nce}, start: bse} | Did you mean "base"?
new: {objective: {name: info_nce}, start: fine_tuned, encoder: {layers: 2}} | methods.new.encoder.layers: found 2
new: {objective: {name: info_nce}, title: fine_tuned} | methods.new.title: found "fine_tuned"
new: {objective: {name: info_nce}, training: {epochs: 0}} | methods.new.training.epochs
new: {objective: {name: info_nce}, stopping: {reading: step, interval_fraction: 0.2}} | methods.new.stopping
new: {training: {epochs: 2}} | methods.new.training: has no effect
new: {start: fine_tuned} | methods.new.start: has no effect on the untouched checkpoint
new: {seed: 0} | methods.new.seed: has no effect on the untouched checkpoint
new: {of: fine_tuned, encoder: {pooling: cls}} | methods.new.of: scores the encoder of another method
"""

OBJECTIVES = """
new: {objective: {name: regression, loss: mse}} | rows without labels
new: {objective: {name: rse}} | rows without relations
new: {corpus: grops, objective: {name: supmpn}} | "grops" is not one of
new: {corpus: graded, objective: {name: supmpn}} | most of which are not positives
new: {corpus: groups, objective: {name: info_nce}} | 2 positives per anchor
new: {corpus: group, objective: {name: triplet}} | Set num_negatives: 1
new: {corpus: pairs, objective: {name: supmpn}} | no hard negatives
new: {objective: {name: regulators}, bank: entropy} | regulators alone
new: {objective: {name: sum, terms: [{}, {}]}} | terms.0.objective: Field required
new: {objective: {name: sum, terms: [{objective: {name: info_nce}}]}} | at least 2
new: {objective: {name: sum, terms: [{objective: {name: info_nce}}, {objective: {name: info_nce}}]}} | info_nce twice
new: {objective: {name: sum, terms: [{objective: {name: info_nce}}, {objective: {name: regulators}}]}} | methods.new.bank: found nothing
new: {objective: {name: sum, terms: [{objective: {name: mlm}}, {wieght: 1, objective: {name: mlm}}]}} | terms.1.wieght: unknown key
new: {training: {freeze_encoder: true}, objective: {name: info_nce}} | freeze_encoder with info_nce: found no own parameters
new: {training: {freeze_encoder: true}, objective: {name: symmetric_info_nce}} | found no own parameters
new: {training: {freeze_encoder: true}, objective: {name: mlm}} | methods.new.select: found stsb-dev
new: {training: {freeze_encoder: true, layer_decay: 0.95}, select: false, objective: {name: mlm}} | layer_decay: found 0.95
"""


@pytest.mark.parametrize("table", ["VALUES", "UNKNOWN_KEYS", "TASKS", "CORPUS", "SWEEPS", "METHODS", "OBJECTIVES"])
def test_a_recipe_that_makes_no_sense_is_refused(table: str) -> None:
    for line in globals()[table].strip().splitlines():
        written, _, said = line.rpartition(" | ")
        changes = parsed_yaml(f"{{{written}}}", where="here", expected="", remedy="")
        assert isinstance(changes, dict)
        base = with_method(new=changes.pop("new")) if "new" in changes else small_values()
        with pytest.raises(RecipeError) as caught:
            plan_of(recipe_from_values({"corpora": CORPORA, **base, **changes}, where="small.yaml"))
        assert said in str(caught.value), line
