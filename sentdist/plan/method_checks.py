"""What a recipe's methods must be: each by itself, and beside the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sentdist.errors import RecipeError
from sentdist.plan.objectives import names_where, terms_of, uses_bank
from sentdist.plan.sections import Method
from sentdist.plan.task_kinds import TASK_KINDS, ScoredTask
from sentdist.plan.wording import not_one_of

OF_A_TRAINING = ("training", "corpus", "stopping", "seed", "start", "bank", "bank_dtype", "regularizers", "select")
UNTOUCHED = Method()


def check_method(name: str, method: Method, methods: dict[str, Method]) -> None:
    """Raise ValueError for fields of a method that do not go together, and for names of methods that there are not."""
    here = f"methods.{name}"
    for field, other in method.inputs.items():
        check_known(f"{here}.{field}", other, tuple(one for one in methods if one != name))
        if methods[other].objective is None:
            raise ValueError(f'{here}.{field}: "{other}" is the untouched checkpoint; expected a method with an objective')
    _check_objective(here, method)
    if method.of is not None and (method.objective is not None or method.start is not None or method.encoder):
        raise ValueError(f"{here}.of: scores the encoder of another method; expected neither objective, start nor encoder beside it")
    if method.phis is not None and method.bank is None:
        raise ValueError(f"{here}.phis: has no effect without a bank; leave it out")
    if method.phis is not None and len(set(method.phis)) != len(method.phis):
        raise ValueError(f"{here}.phis: found {list(method.phis)}; expected each value once")
    if method.phis == ():
        raise ValueError(f"{here}.phis: found an empty set; expected at least one finite number (an rcl without regulators is info_nce)")
    if method.lexical is not None and (method.objective is not None or method.of is not None or method.encoder):
        raise ValueError(f"{here}.lexical: is a row without an encoder; expected neither objective, of nor encoder beside it")
    _check_untouched(here, method)


def inputs_of(name: str, methods: Mapping[str, Method]) -> set[str]:
    """A method and all those whose encoders it needs."""
    found, further = set(), {name}
    while further:
        found |= further
        further = {other for one in further for other in methods[one].inputs.values()} - found
    return found


def _check_untouched(here: str, method: Method) -> None:
    """Raise ValueError for fields of a training where there is none."""
    if method.objective is not None:
        return
    for field in OF_A_TRAINING:
        if getattr(method, field) != getattr(UNTOUCHED, field):
            hint = f". `of: {method.start}` scores its encoder" if field == "start" else ""
            raise ValueError(f"{here}.{field}: has no effect on the untouched checkpoint; leave it out or give an objective{hint}")


def check_reported(methods: Mapping[str, Method]) -> None:
    """Raise ValueError for a recipe without a row."""
    if not any(method.reported for method in methods.values()):
        raise ValueError("methods: found none that is reported; expected at least one, or nothing would be built")


def check_titles(methods: Mapping[str, Method]) -> None:
    """Raise ValueError for two rows of one title: tables and tests take rows of one title for folds of one method."""
    first: dict[str, str] = {}
    for name, method in methods.items():
        title = method.title or name
        if method.reported and first.setdefault(title, name) != name:
            raise ValueError(f'methods.{name}.title: found "{title}", as methods.{first[title]} has it; expected a title for each row')


def check_headline(name: str, baseline: str | None, methods: dict[str, Method]) -> None:
    """Raise ValueError for a headline that no row of the report has, or that has nothing to be compared with."""
    check_known("headline", name, tuple(one for one, method in methods.items() if method.reported and one != baseline))
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


def check_known(where: str, name: str, names: Sequence[str]) -> None:
    """Raise ValueError for a name that is none of `names`."""
    if name not in names:
        raise ValueError(f"{where}: {not_one_of(name, names)}")


def check_lexical(lexical: str | None, tasks: Sequence[ScoredTask], *, where: str) -> None:
    """Raise RecipeError where words alone cannot score a task."""
    if lexical is None:
        return
    unfit = next((task for task in tasks if lexical not in TASK_KINDS[task.kind].floors), None)
    if unfit is not None:
        found = (
            "bm25 for pairs of sentences"
            if lexical == "bm25" and TASK_KINDS[unfit.kind].is_graded_pairs
            else f"{lexical} for {unfit.name} ({unfit.kind})"
        )
        expected = f"{' and '.join(kind.name for kind in TASK_KINDS.values() if lexical in kind.floors)} tasks only"
        others = [floor for floor in TASK_KINDS[unfit.kind].floors if floor != lexical]
        remedy = f"Use {others[0]}." if others else "Score this task in a recipe of its own."
        raise RecipeError(where=f"{where}.lexical", found=found, expected=expected, remedy=remedy)
