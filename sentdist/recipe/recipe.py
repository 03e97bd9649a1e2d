"""Read and check a recipe (YAML); errors name the file and the field."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from sentdist.corpora import CorpusSection
from sentdist.corpora.own import OwnSection
from sentdist.errors import RecipeError, brief, counted, near_file, typed
from sentdist.files import OBJECTS, TABLES, reading, suffix_of
from sentdist.frozen import Frozen
from sentdist.recipe.dotted import with_path
from sentdist.recipe.objectives import AnyObjective
from sentdist.recipe.search import Search
from sentdist.recipe.sections import (
    CHANGED_BY_METHODS,
    EachOnce,
    EncoderSection,
    EvaluationSection,
    FoldsSection,
    Method,
    Name,
    Runtime,
    SelectionSection,
    TargetsSection,
    inputs_of,
)
from sentdist.recipe.shipped import PAPERS, recipe_file, shipped_recipes
from sentdist.recipe.specs import OwnFileSection, Training
from sentdist.recipe.stage import Json
from sentdist.recipe.wording import MOST_BYTES, explained, not_one_of, parsed_yaml
from sentdist.tasks.names import OWN, check_dev_tasks, check_task_name

LIKE = "like"
MAIN = "corpus"  # the recipe's main corpus, in addition to the names under `corpora`
SEARCH_SPACE = "search.space"

if TYPE_CHECKING:
    PaperName = str
else:
    PaperName = Literal[PAPERS]


def with_inherited_corpora(values: object) -> object:
    """Return the values of a recipe with each `like: NAME` under `corpora` expanded.

    NAME is `corpus` or another name under `corpora`. Names in a list under `relations` refer to relations of the corpus NAME. A change of
    NAME by `--set` also changes the corpora like it.

    Raises:
        ValueError: an unknown name, a cycle, an unknown relation, or a sweep or search over a corpus that others are like.
    """
    if not isinstance(values, dict) or not isinstance(corpora := values.get("corpora"), dict):
        return values
    known = {MAIN: values.get(MAIN), **corpora}

    def expanded(name: str, chain: tuple[str, ...] = ()) -> Any:
        own = known[name]
        if not isinstance(own, dict) or LIKE not in own:
            return own
        other = own[LIKE]
        _check_known(f"corpora.{name}.{LIKE}", other, known)
        if other in (name, *chain):
            raise ValueError(f"corpora.{name}.{LIKE}: found {' → '.join((*chain, name, other))}; expected no cycle")
        base = expanded(other, (*chain, name))
        if not isinstance(base, dict):
            raise ValueError(f"corpora.{name}.{LIKE}: found {other}, which is not a section; expected a corpus")
        merged = {**base, **{field: value for field, value in own.items() if field != LIKE}}
        if isinstance(own.get("relations"), list | tuple):
            named = {str(relation.get("name")): relation for relation in base.get("relations", ()) if isinstance(relation, dict)}
            for relation in own["relations"]:
                if isinstance(relation, str):
                    _check_known(f"corpora.{name}.relations", relation, named)
            merged["relations"] = [named[one] if isinstance(one, str) else one for one in own["relations"]]
        return merged

    search = values.get("search")
    for paths in (values.get("sweep"), search.get("space") if isinstance(search, dict) else None):
        for path in paths if isinstance(paths, dict) else ():
            changed = str(path).removeprefix("corpora.").partition(".")[0]
            if changed in [own.get(LIKE) for own in corpora.values() if isinstance(own, dict)]:
                raise ValueError(f"{path}: corpora that are like {changed} would keep their values; vary each of them, or do not use like")
    return values | {"corpora": {name: expanded(name) for name in corpora}}


class Recipe(Frozen):
    """An experiment: data, methods, seeds, and the grid over them."""

    name: Name  # of the sweep, its report and its experiment in MLflow
    about: str = ""  # the question, in a sentence
    encoder: EncoderSection = EncoderSection()  # the start of all methods, unless they change it
    corpus: CorpusSection  # the training data of all methods, unless they name another corpus
    corpora: dict[Name, CorpusSection] = Field(default_factory=dict)  # further corpora that methods name
    targets: TargetsSection | None = None  # None: the defaults, if a method or a probe needs targets
    folds: FoldsSection | None = None  # cross-validation of a retrieval corpus: each fold trains, selects and tests on other queries
    training: Training = Training()  # the settings of all methods, unless they change them
    selection: SelectionSection | None = None  # which dev task chooses checkpoints; None: the last weights are kept
    evaluation: EvaluationSection  # what scores the encoders
    methods: Annotated[dict[Name, Method], Field(min_length=1)]  # the rows of the result table, by name
    baseline: str | None = None  # the method that all others are compared with
    headline: str | None = None  # the method that the report opens with; None: the first one that is trained
    seeds: Annotated[tuple[int, ...], Field(min_length=1), EachOnce] = (0,)  # each cell is trained once with each seed
    confirm_seeds: Annotated[int, Field(ge=0, le=1000)] = 0  # number of new seeds with which the cell chosen on dev is trained again
    # Fields and their values: a cell for each combination.
    sweep: dict[str, Annotated[tuple[Json, ...], Field(min_length=1)]] = Field(default_factory=dict)
    search: Search | None = None  # instead of a sweep: suggestions, with the same budget for each method
    runtime: Runtime = Runtime()  # where and how the work is done; not part of any key
    paper: PaperName | None = None  # a paper whose published tables the report shows beside the results

    def __repr__(self) -> str:  # a notebook would show pages
        varied = f", varied: {', '.join(self.sweep)}" if self.sweep else ", searched" if self.search else ""
        return f"Recipe({self.name!r}, {counted(len(self.methods), 'method')}, {counted(len(self.seeds), 'seed')}{varied})"

    @classmethod
    def load(cls, path: str | Path | Mapping[str, Json], overrides: str | Sequence[str] = ()) -> Recipe:
        """Read a recipe from a file, by the name of a shipped one (`demo`), or from a dict of its values, and check it.

        Args:
            path: A file, a name, or values.
            overrides: `a.b=c`, one or several, applied in order.

        Raises:
            RecipeError: naming the file and the field.
        """
        changes = [overrides] if isinstance(overrides, str) else overrides
        if isinstance(path, Mapping):
            return _with_overrides(copy.deepcopy(dict(path)), changes, where="recipe")
        if not isinstance(path, str | Path):
            raise RecipeError(where="recipe", found=typed(path), expected="a file, a name, or a dict of values", remedy="Name its file.")
        return load_recipe(Path(path).expanduser(), changes)

    _inherited = model_validator(mode="before")(with_inherited_corpora)

    @property
    def varied(self) -> Iterator[tuple[str, str]]:
        """The section and the path of each field that the sweep or the search sets."""
        yield from (("sweep", path) for path in self.sweep)
        yield from ((SEARCH_SPACE, path) for path in (self.search.space if self.search is not None else ()))

    @model_validator(mode="after")
    def _sections_fit(self) -> Recipe:
        _check_methods(self)
        for field, name, known in (
            ("baseline", self.baseline, self.methods),
            ("headline", self.headline, [one for one, method in self.methods.items() if method.reported and one != self.baseline]),
            ("evaluation.links.corpus", self.evaluation.links and self.evaluation.links.corpus, self.corpora),
        ):
            if name is not None:
                _check_known(field, name, known)
        for number, task in enumerate(self.evaluation.tasks):
            check_task_name(task, where=f"evaluation.tasks[{number}]")
        if self.selection is not None:
            check_dev_tasks(self.selection.task)
        if self.confirm_seeds and (self.selection is None or self.baseline is None or self.search is not None):
            raise ValueError("confirm_seeds: has an effect only with a selection and a baseline, and without a search; leave it out")
        is_own = isinstance(self.corpus, OwnSection)
        if is_own and self.folds is not None:
            raise ValueError("folds: has no effect on a corpus of kind own, whose rows are held out once; leave it out")
        if not is_own and OWN in (*self.evaluation.tasks, *(self.selection.names if self.selection is not None else ())):
            raise ValueError(f"corpus: found kind {self.corpus.kind} with the task own; expected one of kind own, whose rows are held out")
        _check_varied(self)
        _check_search(self)
        return self


def _check_known(where: str, name: object, known: Iterable[str]) -> None:
    if name not in tuple(known):
        raise ValueError(f"{where}: {not_one_of(str(name), tuple(known))}")


def _check_methods(recipe: Recipe) -> None:
    """Raise ValueError for unknown names and settings in methods, and for two rows with one title."""
    titles: dict[str, str] = {}
    for name, method in recipe.methods.items():
        here = f"methods.{name}"
        for field, other in method.inputs.items():
            _check_known(f"{here}.{field}", other, [one for one in recipe.methods if one != name])
            if recipe.methods[other].objective is None:
                raise ValueError(f'{here}.{field}: "{other}" is an untouched checkpoint; expected a method with an objective')
        if method.corpus is not None:
            _check_known(f"{here}.corpus", method.corpus, recipe.corpora)
        for section in CHANGED_BY_METHODS:
            shared, own = getattr(recipe, section), getattr(method, section)
            try:
                type(shared).model_validate(shared.model_dump() | own)
            except ValidationError as error:
                problems = [{**problem, "loc": ("methods", name, section, *problem["loc"])} for problem in error.errors()]
                raise ValueError(explained(problems, {"methods": {name: {section: own}}})) from None
        # Tables and statistical tests would treat rows with one title as folds of one method.
        title = method.title or name
        if method.reported and titles.setdefault(title, name) != name:
            raise ValueError(f'{here}.title: found "{title}", as in methods.{titles[title]}; expected a different title for each row')
    for name, method in recipe.methods.items():
        if any(name in inputs_of(other, recipe.methods) for other in method.inputs.values()):
            raise ValueError(f"methods.{name}: needs its own encoder ({', '.join(method.inputs)}); expected no cycle")
    if not titles:
        raise ValueError("methods: found none that is reported; expected at least one, otherwise nothing would be built")


def _check_varied(recipe: Recipe) -> None:
    """Raise ValueError for a sweep or a search over an unknown method, or over what decides which rows are held out."""
    fixed = ["folds"]
    inherited = [f"corpora.{name}" for name in recipe.corpora]
    for where, corpus in {MAIN: recipe.corpus, **dict(zip(inherited, recipe.corpora.values(), strict=True))}.items():
        if isinstance(corpus, OwnSection):
            fixed += [f"{where}.{field}" for field in OwnFileSection.model_fields]
        elif recipe.folds is not None:
            fixed.append(f"{where}.source")
    for section, path in recipe.varied:
        _check_method_of(path, recipe.methods, where=f"{section}.{path}")
        if any(f"{path}.".startswith(f"{field}.") or field.startswith(f"{path}.") for field in fixed):
            raise ValueError(
                f"{section}.{path}: decides which rows are held out, so that scores cannot be compared; make a recipe for each value"
            )


def _check_method_of(path: str, methods: Iterable[str], *, where: str) -> None:
    """Raise ValueError for a dotted path into a method that does not exist: it would silently add a new one."""
    head, *rest = path.split(".")
    if head == "methods" and rest:
        _check_known(where, rest[0], methods)


def _check_search(recipe: Recipe) -> None:
    """Raise ValueError for fields of the recipe that conflict with its search."""
    if recipe.search is None:
        return
    for field, value in (("sweep", recipe.sweep), ("folds", recipe.folds)):
        if value:
            raise ValueError(f"search: found beside {field}; expected one of them")
    if recipe.selection is None:
        raise ValueError("search: found no selection; expected one, because a search maximizes its dev score")
    reported = {name: method for name, method in recipe.methods.items() if method.reported}
    if all(method.objective is None for method in reported.values()):
        raise ValueError("search: found no reported method that is trained; expected at least one")
    for name, method in reported.items():
        if not method.select or method.of is not None:
            field = "of" if method.select else "select"
            raise ValueError(f"methods.{name}.{field}: has no place in a search, which compares trainings by their dev score")


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe from a file, or a shipped one by its name, apply `a.b=c` overrides in order, and check it.

    Raises:
        RecipeError: naming the file and the field.
    """
    path = recipe_file(path)
    expected = "a readable recipe: name, corpus, methods and evaluation, each with its values"
    if path.is_file() and suffix_of(path) in TABLES and suffix_of(path) != OBJECTS:  # JSON is YAML
        remedy = f"It looks like data: `sentdist tune {path}`. In a recipe: `… rayjobs/recipes/own.yaml --set corpus.file={path}`."
        raise RecipeError(where=str(path), found="a table", expected=expected, remedy=remedy)
    remedy = "Save it as UTF-8 text (iconv -f latin1 -t utf-8)." if path.is_file() else _similar(path)
    with reading(path, expected=expected, remedy=remedy, kind=RecipeError, most_bytes=MOST_BYTES):
        text = path.read_text(encoding="utf-8-sig")
    values = parsed_yaml(text, where=str(path), expected="valid YAML", remedy="Correct the line named.")
    if not isinstance(values, dict):
        raise RecipeError(where=str(path), found=brief(values), expected=expected, remedy="See rayjobs/recipes/demo.yaml.")
    return _with_overrides(values, overrides, where=str(path))


def _similar(path: Path) -> str:
    files = {file.name: file for file in [*path.parent.glob("*.yaml"), *shipped_recipes()]}
    closest = near_file(path.name, files)
    return f'Did you mean "{files[closest]}"?' if closest else "`sentdist list recipes` lists the shipped recipes."


def _with_overrides(values: dict[str, Json], overrides: Sequence[str], *, where: str) -> Recipe:
    for override in overrides:
        values = _with_override(values, override)
    return recipe_from_values(values, where=where)


def _with_override(values: dict[str, Json], override: str) -> dict[str, Json]:
    path, equals, text = (part.strip() for part in override.partition("="))
    where = f"--set {override}"
    if not equals or not path:
        expected, remedy = "a dotted field, =, and a YAML value", "Example: --set training.batch_size=32"
        raise RecipeError(where=where, found="no a.b=c", expected=expected, remedy=remedy)
    value = parsed_yaml(text, where=where, expected="a YAML value", remedy="Quote the value.")
    for section in ("sweep", SEARCH_SPACE):  # their keys are themselves dotted paths
        if path.startswith(f"{section}."):
            return with_path(values, [*section.split("."), path.removeprefix(f"{section}.")], value, where=where)
    methods = values.get("methods")
    try:
        _check_method_of(path, methods if isinstance(methods, dict) else (), where=where)
    except ValueError as error:
        raise RecipeError(where=where, found=str(error).removeprefix(f"{where}: "), expected="", remedy="Nothing was started.") from None
    return with_path(values, path, value, where=where)


def recipe_from_values(values: dict[str, Json], *, where: str) -> Recipe:
    """Check the values of a recipe.

    Raises:
        RecipeError: a sentence for each invalid field.
    """
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        raise RecipeError(where=where, found=explained(error.errors(), values), expected="", remedy="Nothing was started.") from None


def objective_from_values(name: str, values: dict[str, Json]) -> AnyObjective:
    """Check the values of one objective as a recipe has them.

    Raises:
        RecipeError: an unknown objective, or invalid values.
    """
    try:
        checked: AnyObjective = TypeAdapter(AnyObjective).validate_python({"name": name, **values})
    except ValidationError as error:
        raise RecipeError(where=f"objective {name}", found=explained(error.errors(), values), expected="", remedy="") from None
    return checked


def recipe_text(values: dict[str, Json]) -> str:
    """Return the values of a recipe as YAML, in their order."""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
