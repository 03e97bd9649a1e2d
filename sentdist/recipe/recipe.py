"""Read and check a recipe (YAML); errors name the file and the field."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from sentdist.corpora import CorpusSection
from sentdist.corpora.own import OwnSection
from sentdist.errors import RecipeError, brief, counted, typed
from sentdist.files import OBJECTS, TABLES, reading, suffix_of
from sentdist.frozen import Frozen
from sentdist.recipe.checks import check_headline, check_known, check_method, check_reported, check_titles
from sentdist.recipe.dotted import check_varied, with_key, with_path
from sentdist.recipe.objectives import AnyObjective, names_where, uses_targets
from sentdist.recipe.search import Search
from sentdist.recipe.sections import (
    CHANGED_BY_METHODS,
    EncoderSection,
    EvaluationSection,
    FoldsSection,
    Method,
    Name,
    Override,
    Runtime,
    SelectionSection,
    TargetsSection,
)
from sentdist.recipe.shipped import PAPERS, meant_recipe, recipe_file
from sentdist.recipe.specs import Training
from sentdist.recipe.stage import Json
from sentdist.recipe.wording import MOST_BYTES, explained, fields_at, not_one_of, parsed_yaml
from sentdist.tasks.names import OWN, check_dev_tasks, check_task_name

LIKE = "like"
MAIN = "corpus"  # the recipe's main corpus, in addition to the names under `corpora`


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
    inherits = {name: one[LIKE] for name, one in corpora.items() if isinstance(one, dict) and LIKE in one}
    for section, path in _varied(values):
        changed = path.removeprefix("corpora.").partition(".")[0]
        if changed in inherits.values():
            raise ValueError(
                f"{section}.{path}: corpora that are like {changed} would keep their values; vary each of them, or do not use like"
            )
    written = {name: _written(name, known, inherits, ()) if name in inherits else one for name, one in corpora.items()}
    return values | {"corpora": written} if inherits else values


def _varied(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (section, path) for each field that a sweep or a search varies, from values that are not checked yet."""
    search = values.get("search")
    for section, paths in (("sweep", values.get("sweep")), ("search.space", search.get("space") if isinstance(search, dict) else None)):
        yield from ((section, str(path)) for path in (paths if isinstance(paths, dict) else ()))


def _written(name: str, known: dict[str, Any], inherits: dict[str, Any], chain: tuple[str, ...]) -> dict[str, Any]:
    own, other = known[name], inherits[name]
    where = f"corpora.{name}.{LIKE}"
    if not isinstance(other, str) or other not in known:
        raise ValueError(f"{where}: {not_one_of(str(other), tuple(known))}")
    if other == name or other in chain:
        raise ValueError(f"{where}: found {' → '.join((*chain, name, other))}; expected no cycle")
    base = _written(other, known, inherits, (*chain, name)) if other in inherits else known[other]
    if not isinstance(base, dict):
        raise ValueError(f"{where}: found {other}, which is not a section; expected a corpus")
    merged = {**base, **{field: value for field, value in own.items() if field != LIKE}}
    if "relations" in own:
        named, there, of = own["relations"], base.get("relations"), f"corpora.{name}.relations"
        if not isinstance(named, list | tuple):
            raise ValueError(f"{of}: found {brief(named)}; expected a list of relations, or of names of relations under {other}")
        merged["relations"] = [_relation(one, [*there] if isinstance(there, list | tuple) else [], where=of) for one in named]
    return merged


def _relation(one: Any, there: Sequence[Any], *, where: str) -> Any:
    if not isinstance(one, str):
        return one
    named = {relation.get("name"): relation for relation in there if isinstance(relation, dict)}
    if one not in named:
        raise ValueError(f"{where}: {not_one_of(one, tuple(map(str, named)))}")
    return named[one]


if TYPE_CHECKING:
    PaperName = str
else:
    PaperName = Literal[PAPERS]
A_RECIPE = "a recipe: name, corpus, methods and evaluation, each with its values"
UTF_8 = "Save it as UTF-8 text (iconv -f latin1 -t utf-8)."


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
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (0,)  # each cell is trained once with each seed
    confirm_seeds: Annotated[int, Field(ge=0, le=1000)] = 0  # number of new seeds with which the cell chosen on dev is trained again
    sweep: dict[str, tuple[Json, ...]] = Field(default_factory=dict)  # fields and their values: a cell for each combination
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
        if not isinstance(changes, Sequence) or not all(isinstance(change, str) for change in changes):
            expected, remedy = "strings that change one field each", 'For example ["training.batch_size=32"].'
            raise RecipeError(where="overrides", found=brief(overrides), expected=expected, remedy=remedy)
        if isinstance(path, Mapping):
            return _with_overrides(copy.deepcopy(dict(path)), changes, where="recipe")
        if not isinstance(path, str | Path):
            raise RecipeError(where="recipe", found=typed(path), expected="a Recipe, or the path of one", remedy="Name its file.")
        return load_recipe(Path(path).expanduser(), changes)

    _inherited = model_validator(mode="before")(with_inherited_corpora)

    @model_validator(mode="after")
    def _sections_fit(self) -> Recipe:
        for name, method in self.methods.items():
            check_method(name, method, self.methods)
            for section in CHANGED_BY_METHODS:
                _check_overrides(f"methods.{name}.{section}", getattr(self, section), getattr(method, section))
            if method.corpus is not None:
                check_known(f"methods.{name}.corpus", method.corpus, tuple(self.corpora))
        check_titles(self.methods)
        check_reported(self.methods)
        has_tasks = any(method.objective is not None and uses_targets(method.objective) for method in self.methods.values())
        if self.targets is not None and not has_tasks and self.evaluation.probes is None:
            raise ValueError(f"targets: has no effect without the objective {names_where(targets=True)} or evaluation.probes; leave it out")
        if self.baseline is not None:
            check_known("baseline", self.baseline, tuple(self.methods))
        if self.headline is not None:
            check_headline(self.headline, self.baseline, self.methods)
        for number, task in enumerate(self.evaluation.tasks):
            check_task_name(task, where=f"evaluation.tasks[{number}]")
        if self.evaluation.links is not None and self.evaluation.links.corpus is not None:
            check_known("evaluation.links.corpus", self.evaluation.links.corpus, tuple(self.corpora))
        _check_own(self)
        if self.selection is not None:
            check_dev_tasks(self.selection.task)
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds: found {list(self.seeds)}; expected each seed once")
        if self.confirm_seeds and (self.selection is None or self.baseline is None):
            raise ValueError("confirm_seeds: has no effect without a selection and a baseline; add both or leave it out")
        corpora = {"corpus": self.corpus, **{f"corpora.{name}": one for name, one in self.corpora.items()}}
        for section, paths in (("sweep", self.sweep), ("search.space", {} if self.search is None else self.search.space)):
            check_varied(section, paths, corpora, has_folds=self.folds is not None)
        _check_search(self)
        _check_gpus(self.runtime)
        return self


def _check_own(recipe: Recipe) -> None:
    """Raise ValueError for the task own or shapes without a corpus of kind own, and for folds with one."""
    if isinstance(recipe.corpus, OwnSection):
        if recipe.folds is not None:
            raise ValueError("folds: has no effect on a corpus of kind own, whose rows are held out once; leave it out")
        return
    of = {"evaluation.tasks": recipe.evaluation.tasks, "selection.task": () if recipe.selection is None else recipe.selection.names}
    for where, names in of.items():
        if OWN in names:
            raise ValueError(
                f"{where}: found own with a corpus of kind {recipe.corpus.kind}; expected one of kind own, whose rows are held out"
            )
    for name, method in recipe.methods.items():
        if method.shapes:
            raise ValueError(f"methods.{name}.shapes: has no effect on a corpus of kind {recipe.corpus.kind}; leave it out")


def _check_search(recipe: Recipe) -> None:
    """Raise ValueError for fields of the recipe that conflict with its search."""
    if recipe.search is None:
        return
    if recipe.sweep:
        raise ValueError("search: found beside sweep; expected one of them: `search: {suggest: grid, …}` tries a grid")
    if recipe.folds is not None:
        raise ValueError(
            "search: found beside folds; expected one dev set to compare all suggestions. `sweep:` compares a few settings over folds"
        )
    if recipe.confirm_seeds:
        raise ValueError("confirm_seeds: has no effect beside search, whose finalists are trained with all seeds; leave it out")
    if recipe.selection is None:
        raise ValueError("search: found no selection; expected one, because a search maximizes its dev score")
    searched = [name for name, method in recipe.methods.items() if method.reported and method.objective is not None]
    if not searched:
        raise ValueError("search: found no reported method that is trained; expected at least one")
    for name, method in recipe.methods.items():
        if name in searched and not method.select:
            raise ValueError(f"methods.{name}.select: found false in a search; expected true: without selection there is no dev score")
        if method.reported and method.of is not None:
            raise ValueError(
                f"methods.{name}.of: found in a search; expected methods that are trained: score other views in a separate recipe"
            )


def _check_gpus(runtime: Runtime) -> None:
    if runtime.most_workers > 1 and runtime.gpus_per_worker % 1:
        raise ValueError(
            f"runtime.gpus_per_worker: found {runtime.gpus_per_worker:g} with {runtime.most_workers} workers per training; expected a "
            "whole number: NCCL does not let two workers of a training share a GPU. Set it to 1, or runtime.workers=1"
        )


def _check_overrides(where: str, shared: Frozen, own: dict[str, Override]) -> None:
    for field in own:
        check_known(where, field, tuple(type(shared).model_fields))
    try:
        type(shared).model_validate(shared.model_dump() | own)
    except ValidationError as error:
        problems = [{**problem, "loc": (*where.split("."), *problem["loc"])} for problem in error.errors()]
        raise ValueError(explained(problems, fields_beside)) from None


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe from a file, or a shipped one by its name, apply `a.b=c` overrides in order, and check it.

    Raises:
        RecipeError: naming the file and the field.
    """
    path = recipe_file(path)
    meant = None if path.is_file() else meant_recipe(path)
    hint = f'Did you mean "{meant}"?' if meant else "`sentdist list recipes` lists the shipped recipes."
    remedy = UTF_8 if path.is_file() else hint
    by_recipe = f"To use it in a recipe: `… rayjobs/recipes/own.yaml --set corpus.file={path}`."
    of_data = f"It looks like data: `sentdist tune {path}`. {by_recipe}" if suffix_of(path) in TABLES else None
    if of_data is not None and path.is_file() and suffix_of(path) != OBJECTS:  # JSON is YAML
        raise RecipeError(where=str(path), found="a table", expected=A_RECIPE, remedy=of_data)
    with reading(path, expected="a readable recipe", remedy=remedy, kind=RecipeError, most_bytes=MOST_BYTES):
        text = path.read_text(encoding="utf-8-sig")
    values = parsed_yaml(text, where=str(path), expected="valid YAML", remedy="Correct the line named.")
    if not isinstance(values, dict):
        remedy = of_data or "See rayjobs/recipes/demo.yaml."
        raise RecipeError(where=str(path), found=_kind_of(values, text), expected=A_RECIPE, remedy=remedy)
    return _with_overrides(values, overrides, where=str(path))


def _with_overrides(values: dict[str, Json], overrides: Sequence[str], *, where: str) -> Recipe:
    for override in overrides:
        _apply_override(values, override)
    return recipe_from_values(values, where=where)


def _kind_of(values: Json, text: str) -> str:
    """Describe the content of a file that is not a recipe."""
    if not text.strip() or values is None:
        return "an empty file"
    return "a list" if isinstance(values, list) else "plain text" if isinstance(values, str) else str(values)


def recipe_from_values(values: dict[str, Json], *, where: str) -> Recipe:
    """Check the values of a recipe.

    Raises:
        RecipeError: a sentence for each invalid field.
    """
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        raise RecipeError(where=where, found=explained(error.errors(), fields_beside), expected="", remedy="Nothing was started.") from None


def objective_from_values(name: str, values: dict[str, Json]) -> AnyObjective:
    """Check the values of one objective as a recipe has them.

    Raises:
        RecipeError: an unknown objective, or invalid values.
    """
    try:
        checked: AnyObjective = TypeAdapter(AnyObjective).validate_python({"name": name, **values})
    except ValidationError as error:
        problems = [{**problem, "loc": ("objective", *problem["loc"])} for problem in error.errors()]
        raise RecipeError(where=f"objective {name}", found=explained(problems, fields_beside), expected="", remedy="") from None
    return checked


def recipe_text(values: dict[str, Json]) -> str:
    """Return the values of a recipe as YAML, in their order."""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _apply_override(values: dict[str, Json], override: str) -> None:
    path, equals, text = (part.strip() for part in override.partition("="))
    if not equals or not path:
        remedy = "Example: --set training.batch_size=32"
        raise RecipeError(where=f"--set {override}", found="no a.b=c", expected="a dotted field, =, and a YAML value", remedy=remedy)
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
    """Raise RecipeError for a dotted path into a method that does not exist: it would silently add a new one."""
    head, _, rest = dotted.partition(".")
    name = rest.partition(".")[0]
    if head == "methods" and not name:
        expected = f"a field of one, such as methods.{methods[0] if methods else 'NAME'}.title"
        raise RecipeError(where=where, found="all methods at once", expected=expected, remedy="Write other methods into another recipe.")
    if head == "methods" and name not in methods:
        raise RecipeError(where=where, found=not_one_of(name, methods), expected="", remedy="Nothing was started.")


def fields_beside(location: list[str]) -> dict[str, str]:
    """Return the fields that a mapping at this place of a recipe can have, with what each takes.

    A section of a method, such as `training`, has the fields of that section of the recipe.
    """
    return fields_at(Recipe, location) or (fields_at(Recipe, location[2:]) if location[:1] == ["methods"] else {})
