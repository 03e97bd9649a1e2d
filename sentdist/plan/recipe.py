"""What a person writes: the recipe, as YAML, read strictly and with errors that name file and field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from sentdist.errors import RecipeError
from sentdist.frozen import Frozen
from sentdist.plan.chosen_tasks import check_dev_tasks, is_task_name, no_task
from sentdist.plan.corpora import SECTIONS as CORPUS_SECTIONS
from sentdist.plan.corpora import CorpusSection
from sentdist.plan.corpora.groups import AugmentationSection
from sentdist.plan.corpora.own import HeldOutSection, check_own
from sentdist.plan.corpora.relations import LinksSection
from sentdist.plan.dotted import with_key, with_path
from sentdist.plan.inheritance import with_inherited_corpora
from sentdist.plan.objectives import Objective, names_where, terms_of, uses_bank, uses_targets
from sentdist.plan.papers import PAPERS
from sentdist.plan.runtime import Runtime
from sentdist.plan.search import Axis, Budget, Halving, Search, check_search
from sentdist.plan.specs import Fraction, Pooling, Precision, Probes, Regularizers, Shape, Stopping, Training, View
from sentdist.plan.stage import Json
from sentdist.plan.strict_yaml import MOST_BYTES, parsed_yaml
from sentdist.plan.tasks import TASK_GROUPS
from sentdist.plan.wording import NAME, ONE_LINE, explained, not_one_of
from sentdist.reading import reading, unreadable
from sentdist.spelling import near

Name = Annotated[str, Field(pattern=NAME)]
Title = Annotated[str, Field(pattern=ONE_LINE)]  # one line, no control characters: tables and figures show it
if TYPE_CHECKING:
    PaperName = str
else:
    PaperName = Literal[PAPERS]
UTF_8 = "Save it as UTF-8 text (iconv -f latin1 -t utf-8)."
TABLES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
Override = None | bool | int | float | str


class EncoderSection(Frozen):
    """The pretrained checkpoint that training starts from."""

    checkpoint: str = "minilm-l6"  # a packaged name (`sentdist models`), a folder, or a hub id
    revision: str | None = None  # of a hub checkpoint; a packaged one and a folder pin themselves
    pooling: Pooling = "mean"  # how the states of tokens become one embedding
    initialization: Literal["pretrained", "random"] = "pretrained"  # random: only the architecture and the tokenizer are taken
    layers: Annotated[int, Field(ge=1)] | None = None  # the first so many transformer layers; None: all


class SelectionSection(Frozen):
    """Which dev task chooses the checkpoint, and how often it is scored. `stsb-dev+sickr-dev`: the mean of several; a group of tasks beside
    others counts as one of them."""

    task: str  # `stsb-dev`, or several joined by +
    every_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1  # of an epoch, between two dev scores
    limit: Annotated[int, Field(ge=10)] | None = None  # of each task's pairs or queries, the same ones each time
    view: View = View()  # how embeddings are read for the dev score

    @property
    def names(self) -> tuple[str, ...]:
        """The tasks, one by one."""
        return tuple(task for name in self.task.split("+") for task in TASK_GROUPS.get(name, (name,)))


class EvaluationSection(Frozen):
    """Which tasks score an encoder."""

    tasks: Annotated[tuple[str, ...], Field(min_length=1)]  # names or groups (`sentdist tasks`), or KIND=SOURCE of your own
    links: LinksSection | None = None  # also rank the tails of triples that a relational corpus has held out
    max_length: Annotated[int, Field(ge=3)] | None = None  # tokens; None: the training's
    precision: Precision = "fp32"  # of the products while sentences are encoded
    probes: Probes | None = None  # of every method's encoder, on the sentences of its corpus


class TargetsSection(Frozen):
    """Who tags the sentences of a corpus, and how many words are looked for: for auxiliary tasks and probes."""

    tagger: str = "nltk"  # NLTK's, or "module:function" that gives a list of (word, tag) for each sentence
    num_words: Annotated[int, Field(ge=1)] = 20_000


class FoldsSection(Frozen):
    """Cross-validation over the queries of a retrieval corpus."""

    num: Annotated[int, Field(ge=3, le=1000)] = 5
    seed: int = 0
    by: Literal["query", "answer"] = "query"  # answer: queries that share a relevant answer stay in one fold


class Method(Frozen):
    """One row of the result table. Without an objective it is the untouched checkpoint, or another method's encoder read in another way."""

    title: Title | None = None  # its row in tables; None: its name
    objective: Objective | None = None  # what is minimized; None: nothing is trained
    lexical: Literal["word_overlap", "bm25"] | None = None  # no encoder at all: the floor of a table
    encoder: dict[str, Override] = Field(default_factory=dict)  # what differs from the recipe's own encoder section
    of: str | None = None  # the method whose encoder is scored again, in this row's view
    view: View = View()  # how embeddings are read when they are scored
    corpus: str | None = None  # a name under corpora; None: the recipe's corpus
    start: str | None = None  # the method whose encoder training continues from
    bank: str | None = None  # the method that trains the entropy encoders of an objective with regulators
    phis: tuple[float, ...] | None = None  # one entropy encoder each
    shapes: tuple[Shape, ...] = ()  # of the rows of a corpus of kind own that this method is for; left out for others; (): for all
    bank_dtype: Literal["float16", "float32"] = "float16"  # in which a bank is kept
    training: dict[str, Override] = Field(default_factory=dict)  # what differs from the recipe's own training section
    regularizers: Regularizers = Regularizers()  # dropouts while it trains
    stopping: Stopping | None = None  # by the training loss; None: all epochs
    seed: int | None = None  # one training, with what it starts from, for all of the recipe's seeds: a pre-training, a first stage
    select: bool = True  # keep the best checkpoint by the recipe's selection task; False keeps the last weights
    reported: bool = True  # False: only an input of other methods


class Recipe(Frozen):
    """A question about encoders, complete: data, methods, seeds, and the grid over them."""

    name: Name  # of the sweep, its report and its experiment in MLflow
    about: str = ""  # the question, in a sentence
    encoder: EncoderSection = EncoderSection()  # that all methods start from, unless they say otherwise
    corpus: CorpusSection  # that all methods train on, unless they name another
    corpora: dict[Name, CorpusSection] = Field(default_factory=dict)  # others, that methods name
    targets: TargetsSection | None = None  # None: as they are, where a method or a probe needs them
    folds: FoldsSection | None = None  # of a retrieval corpus: each fold trains, chooses and is scored on other queries
    training: Training = Training()  # of all methods, unless they say otherwise
    selection: SelectionSection | None = None  # which dev task chooses checkpoints; None: the last weights are kept
    evaluation: EvaluationSection  # what scores the encoders
    methods: Annotated[dict[Name, Method], Field(min_length=1)]  # the rows of the result table, by name
    baseline: str | None = None  # the method that all others are compared with
    headline: str | None = None  # the method that the report opens with; None: the first one that is trained
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (0,)  # one training of each cell with each
    confirm_seeds: Annotated[int, Field(ge=0, le=1000)] = 0  # fresh ones, with which the cell that dev chose is trained again
    sweep: dict[str, tuple[Json, ...]] = Field(default_factory=dict)  # fields and their values: a cell for each combination
    search: Search | None = None  # in place of a sweep: suggestions, with the same budget for each method
    runtime: Runtime = Runtime()  # where and how the work is done; never changes a result
    paper: PaperName | None = None  # whose printed tables stand beside ours in the report

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
        """Read a recipe's file and check it; overrides are `a.b=c`, applied in order.

        Raises:
            RecipeError: naming the file and the field, or another recipe beside it with the same name.
        """
        recipe = load_recipe(Path(path), overrides)
        check_unique_name(Path(path), recipe.name)
        return recipe

    _inherited = model_validator(mode="before")(with_inherited_corpora)

    @model_validator(mode="after")
    def _names_exist(self) -> Recipe:
        for name, method in self.methods.items():
            _check_method(name, method, self.methods)
            _check_overrides(f"methods.{name}.training", self.training, method.training)
            _check_overrides(f"methods.{name}.encoder", self.encoder, method.encoder)
            if method.corpus is not None:
                _known(f"methods.{name}.corpus", method.corpus, tuple(self.corpora))
        has_tasks = any(method.objective is not None and uses_targets(method.objective) for method in self.methods.values())
        if self.targets is not None and not has_tasks and self.evaluation.probes is None:
            raise ValueError(f"targets: has no effect without the objective {names_where(targets=True)} or evaluation.probes; leave it out")
        if self.baseline is not None:
            _known("baseline", self.baseline, tuple(self.methods))
        if self.headline is not None:
            _check_headline(self.headline, self.baseline, self.methods)
        for number, task in enumerate(self.evaluation.tasks):
            if not is_task_name(task):
                raise ValueError(f"evaluation.tasks[{number}]: {no_task(task)}")
        if self.evaluation.links is not None and self.evaluation.links.corpus is not None:
            _known("evaluation.links.corpus", self.evaluation.links.corpus, tuple(self.corpora))
        check_own(self)
        if self.selection is not None:
            check_dev_tasks(self.selection.task)
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds: found {list(self.seeds)}; expected each seed once")
        if self.confirm_seeds and (self.selection is None or self.baseline is None):
            raise ValueError("confirm_seeds: has no effect without a selection and a baseline; add both or leave it out")
        check_search(self)
        _check_gpus(self.runtime)
        return self


def _check_gpus(runtime: Runtime) -> None:
    if runtime.most_workers > 1 and runtime.gpus_per_worker % 1:
        asked = f"found {runtime.gpus_per_worker:g} with {runtime.most_workers} workers a training"
        raise ValueError(
            f"runtime.gpus_per_worker: {asked}; expected a whole number: NCCL lets no two workers of a training share a GPU. "
            "Set it to 1, or runtime.workers=1"
        )


def _check_method(name: str, method: Method, methods: dict[str, Method]) -> None:
    here = f"methods.{name}"
    for field, other in (("start", method.start), ("bank", method.bank), ("of", method.of)):
        if other is None:
            continue
        _known(f"{here}.{field}", other, tuple(known for known in methods if known != name))
        if methods[other].objective is None:
            raise ValueError(f'{here}.{field}: "{other}" is the untouched checkpoint; expected a method with an objective')
    _check_objective(here, method)
    if method.of is not None and (method.objective is not None or method.start is not None):
        raise ValueError(f"{here}.of: scores the encoder of another method; expected neither objective nor start beside it")
    if method.phis is not None and method.bank is None:
        raise ValueError(f"{here}.phis: has no effect without a bank; leave it out")
    if method.phis is not None and len(set(method.phis)) != len(method.phis):
        raise ValueError(f"{here}.phis: found {list(method.phis)}; expected each value once")
    if method.phis == ():
        raise ValueError(f"{here}.phis: found an empty set; expected at least one finite number (an rcl without regulators is info_nce)")
    if method.lexical is not None and (method.objective is not None or method.of is not None or method.encoder):
        raise ValueError(f"{here}.lexical: is a row without an encoder; expected neither objective, of nor encoder beside it")
    for field in ("training", "corpus", "stopping", "seed"):
        if method.objective is None and getattr(method, field) not in (None, {}):
            raise ValueError(f"{here}.{field}: has no effect on the untouched checkpoint; leave it out or give an objective")


def _check_headline(name: str, baseline: str | None, methods: dict[str, Method]) -> None:
    _known("headline", name, tuple(known for known, method in methods.items() if method.reported and known != baseline))
    if baseline is None:
        raise ValueError("headline: has no effect without a baseline that it is compared with; name one or leave it out")


def _check_objective(here: str, method: Method) -> None:
    if method.objective is None:
        return
    with_bank = uses_bank(method.objective)
    if with_bank and method.bank is None:
        raise ValueError(f"{here}.bank: found nothing; expected the name of the method that trains the entropy encoders")
    if method.bank is not None and not with_bank:
        raise ValueError(f"{here}.bank: has no effect without the objective {names_where(bank=True)}; leave it out")
    terms = list(terms_of(method.objective))
    if not any(term.needs.alone for term in terms):
        raise ValueError(f"{here}.objective: found {terms[0].name} alone; expected them beside another objective, as a term of a sum")


def _check_overrides(where: str, shared: Frozen, own: dict[str, Override]) -> None:
    for field in own:
        _known(where, field, tuple(type(shared).model_fields))
    try:
        type(shared).model_validate(shared.model_dump() | own)
    except ValidationError as error:
        problems = [{**problem, "loc": (*where.split("."), *problem["loc"])} for problem in error.errors()]
        raise ValueError(explained(problems, _fields_beside)) from None


def _known(where: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise ValueError(f"{where}: {not_one_of(name, names)}")


SECTIONS: dict[str, tuple[type[Frozen], ...]] = {
    "encoder": (EncoderSection,), "corpus": CORPUS_SECTIONS, "folds": (FoldsSection,), "training": (Training,),
    "selection": (SelectionSection,), "evaluation": (EvaluationSection,), "runtime": (Runtime,), "regularizers": (Regularizers,),
    "stopping": (Stopping,), "view": (View,), "targets": (TargetsSection,), "probes": (Probes,), "augmentation": (AugmentationSection,),
    "held_out": (HeldOutSection,), "search": (Search,), "halving": (Halving,), "budget": (Budget,),
}  # fmt: skip


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe file, apply `a.b=c` overrides in order, and check it.

    Raises:
        RecipeError: naming the file and the field.
    """
    remedy = UTF_8 if path.is_file() else _near_recipes(path)
    with reading(path, expected="a readable recipe", remedy=remedy, kind=RecipeError, most_bytes=MOST_BYTES):
        text = path.read_text(encoding="utf-8-sig")
    values = parsed_yaml(text, where=str(path), expected="valid YAML", remedy="Correct the line named.")
    if not isinstance(values, dict):
        raise RecipeError(
            where=str(path),
            found=_kind_of(values, text),
            expected="a recipe: name, corpus, methods and evaluation, each with its values",
            remedy=f"It looks like data: `sentdist tune {path}`." if path.suffix in TABLES else "See rayjobs/recipes/demo.yaml.",
        )
    for override in overrides:
        _apply_override(values, override)
    return recipe_from_values(values, where=str(path))


def _kind_of(values: Json, text: str) -> str:
    """What stands in a file that is no recipe."""
    if not text.strip() or values is None:
        return "an empty file"
    return "a list" if isinstance(values, list) else "plain text" if isinstance(values, str) else str(values)


def recipe_from_values(values: dict[str, Json], *, where: str) -> Recipe:
    """Check the values of a recipe.

    Raises:
        RecipeError: one line for each field at fault.
    """
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        raise RecipeError(
            where=where, found=explained(error.errors(), _fields_beside), expected="", remedy="Nothing was started."
        ) from None


def objective_from_values(name: str, values: dict[str, Json]) -> Objective:
    """Check the values of one objective, as a recipe spells them.

    Raises:
        RecipeError: no such objective, or values that it has not.
    """
    try:
        checked: Objective = TypeAdapter(Objective).validate_python({"name": name, **values})
    except ValidationError as error:
        problems = [{**problem, "loc": ("objective", *problem["loc"])} for problem in error.errors()]
        raise RecipeError(where=f"objective {name}", found=explained(problems, _fields_beside), expected="", remedy="") from None
    return checked


def recipe_text(values: dict[str, Json]) -> str:
    """The values of a recipe as YAML, in their order."""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def check_unique_name(path: Path, name: str) -> None:
    """Refuse a recipe whose name is that of a file beside it already: both would write into one experiment.

    Raises:
        RecipeError: naming both files.
    """
    root = next((folder for folder in path.resolve().parents if folder.name == "recipes"), path.resolve().parent)
    pattern = re.compile(rf"^name:\s*[\"']?{re.escape(name)}[\"']?\s*(#.*)?$", re.MULTILINE)
    files = root.rglob("*.yaml") if root.name == "recipes" else root.glob("*.yaml")
    others = (file for file in sorted(files) if unreadable(file, most_bytes=MOST_BYTES) is None and not file.samefile(path))
    same_name = [file for file in others if pattern.search(file.read_text(encoding="utf-8", errors="replace"))]
    if same_name:
        raise RecipeError(
            where=f"{path}: name",
            found=f'"{name}", already used by {same_name[0]}',
            expected="one name a recipe",
            remedy="Rename one of the two.",
        )


def _apply_override(values: dict[str, Json], override: str) -> None:
    path, equals, text = (part.strip() for part in override.partition("="))
    if not equals or not path:
        raise RecipeError(
            where=f"--set {override}",
            found="no a.b=c",
            expected="a dotted field, =, and a YAML value",
            remedy="Example: --set training.batch_size=32",
        )
    where = f"--set {override}"
    value = parsed_yaml(text, where=where, expected="a YAML value", remedy="Quote the value.")
    for section in ("sweep.", "search.space."):  # their keys are themselves dotted paths
        if path.startswith(section):
            values.update(with_key(values, section.split(".")[:-1], path.removeprefix(section), value))
            return
    methods = values.get("methods")
    check_method_in_path(path, list(methods) if isinstance(methods, dict) else [], where=where)
    values.update(with_path(values, path, value, where=where))


def check_method_in_path(dotted: str, methods: Sequence[str], *, where: str) -> None:
    """Refuse a dotted path into a method that does not exist: it would quietly make a new one.

    Raises:
        RecipeError: naming the methods there are.
    """
    head, _, rest = dotted.partition(".")
    name = rest.partition(".")[0]
    if head == "methods" and name not in methods:
        raise RecipeError(where=where, found=not_one_of(name, methods), expected="", remedy="Nothing was started.")


def _fields_beside(location: list[str]) -> list[str]:
    """The fields that a mapping at this place of a recipe can have."""
    if not location:
        return list(Recipe.model_fields)
    if location[:2] == ["search", "space"]:
        return list(Axis.model_fields)
    if location[-1] in SECTIONS:
        return [field for section in SECTIONS[location[-1]] for field in section.model_fields]
    if location[0] == "methods" and len(location) == 2:
        return list(Method.model_fields)
    return []


def _near_recipes(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path()
    names = [file.name for file in sorted(folder.glob("*.yaml"))]
    closest = near(path.name, names)
    return f'Did you mean "{folder / closest}"?' if closest else "Shipped recipes stand in rayjobs/recipes."


__all__ = ["Fraction", "Recipe", "check_method_in_path", "check_unique_name", "load_recipe", "recipe_from_values", "with_path"]
