"""How the fields of a stage and of all that it was made from become flat parameters, so that a table of runs can be filtered."""

from __future__ import annotations

from collections.abc import Mapping

from sentdist.plan.selection import dev_tasks
from sentdist.plan.stage import Json
from sentdist.store.sweep import TrialRecord

Stages = Mapping[str, dict[str, Json]]  # key -> Stage.canonical()


def trial_parameters(trial: TrialRecord, stages: Stages) -> dict[str, str]:
    """Parameters of a trial: its method, seed and fold, and those of its training and scoring, under the recipe's names."""
    found: dict[str, Json] = {"method": trial.method, "cell": trial.cell, "seed": trial.seed, "fold": trial.fold}
    return _texts(found | _scores(trial.key, stages) | {"seed": trial.seed, "fold": trial.fold})


def stage_parameters(key: str, stages: Stages) -> dict[str, str]:
    """Parameters of a stage. What it does not set (None) is left out; numbers are spelt as Python does."""
    kind = str(stages[key]["kind"])
    read = {"targets": _targets, "train": _train, "bank": _bank, "scores": _scores}.get(kind, _corpus)
    return _texts(read(key, stages) | {"kind": kind})


def data_sets(key: str, stages: Stages) -> list[tuple[str, str, str]]:
    """(name, digest, context) of the data that a stage reads, directly or through its inputs: train, dev or test."""
    fields = _fields(key, stages)
    kind = stages[key]["kind"] if key in stages else None
    found: list[tuple[str, str, str]] = []
    found += [(_named(source["source"], source.get("split")), str(source["source_revision"]), "train") for source in _sources(fields)]
    for name in ("corpus", "encoder", "start"):  # of those that a stage has
        inner = _input(fields.get(name))
        found += data_sets(inner, stages) if inner in stages else []
    selection = fields.get("selection")
    if kind == "train" and isinstance(selection, dict):
        found += [_task(task, "dev") for task in dev_tasks(selection)]
    tasks = fields.get("tasks")
    if isinstance(tasks, list):
        found += [_task(task, "test") for task in tasks]
    return list(dict.fromkeys(found))


def uses(key: str, stages: Stages) -> list[str]:
    """Keys of the stages that stand in the fields of a stage, in order."""
    found: list[str] = []
    for value in _fields(key, stages).values():
        for item in value if isinstance(value, list) else [value]:
            inner = _input(item)
            if inner and inner not in found:
                found.append(inner)
    return found


def _corpus(key: str, stages: Stages) -> dict[str, Json]:
    fields = _fields(key, stages)
    if not fields:
        return {}
    fold = fields.get("fold")
    number = fold.get("number") if isinstance(fold, dict) else None
    hidden = ("source", "source_revision", "parts", "relations", "fold", "document_field", "without", "corpus")
    own = {f"corpus.{name}": value for name, value in fields.items() if name not in hidden and not isinstance(value, dict)}
    sources = _sources(fields) or _sources(_fields(_input(fields.get("corpus")), stages))
    names = [str(source["source"]) for source in sources]
    revisions = [str(source["source_revision"]) for source in sources]
    return {"corpus": " + ".join(dict.fromkeys(names)), "corpus.revision": ", ".join(revisions), **own, "fold": number}


def _sources(fields: dict[str, Json]) -> list[dict[str, Json]]:
    """What a corpus is read from: itself, its parts, or the files of its relations."""
    if "source" in fields:
        return [fields]
    relations = [relation for relation in _dicts(fields.get("relations")) if "sources" in relation]
    return [*_dicts(fields.get("parts")), *(file for relation in relations for file in _dicts(relation["sources"]))]


def _dicts(value: Json) -> list[dict[str, Json]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _targets(key: str, stages: Stages) -> dict[str, Json]:
    fields = _fields(key, stages)
    own = {f"targets.{name}": fields.get(name) for name in ("tagger", "tagger_revision", "num_words")}
    return own | _corpus(_input(fields["corpus"]), stages)


def _train(key: str, stages: Stages) -> dict[str, Json]:
    fields = _fields(key, stages)
    if not fields:
        return {}
    found = _encoder(fields["encoder"]) | _corpus(_input(fields["corpus"]), stages)
    for section in ("training", "regularizers", "stopping"):
        values = fields.get(section)
        if isinstance(values, dict):
            found |= {f"{section}.{name}": value for name, value in values.items()}
    objective = _objective(key, stages)
    found |= _objective_parameters(objective)
    if _phi(objective) is not None:
        found["phi"] = _phi(objective)
    selection = fields.get("selection")
    if isinstance(selection, dict):
        found["selection.task"] = "+".join(str(task["name"]) for task in dev_tasks(selection))
        found["selection.every_fraction"] = selection["every_fraction"]
        found["selection.limit"] = dev_tasks(selection)[0].get("limit")
    start = _input(fields.get("start"))
    found["start"] = _objective(start, stages).get("name") if start else None
    banks = fields.get("banks")
    keys = [_input(bank) for bank in banks] if isinstance(banks, list) else []
    if keys:
        found |= {"num_regulators": len(keys), "bank.dtype": _fields(keys[0], stages).get("dtype")}
        phis = [_phi(_objective(_input(_fields(bank, stages).get("encoder")), stages)) for bank in keys]
        found["phis"] = [phi for phi in phis if phi is not None] or None
    return found | {"seed": fields["seed"]}


def _objective_parameters(objective: dict[str, Json]) -> dict[str, Json]:
    """Those of a sum stand under the names of its terms: objective.supmpn.temperature, objective.supmpn.weight."""
    found: dict[str, Json] = {f"objective.{name}": value for name, value in objective.items() if name != "terms"}
    terms = [(term.get("weight"), term["objective"]) for term in _dicts(objective.get("terms"))]
    for weight, term in terms:
        assert isinstance(term, dict)
        values = {name: value for name, value in term.items() if name != "name"} | {"weight": weight}
        found |= {f"objective.{term['name']}.{name}": value for name, value in values.items()}
    if terms:
        found["objective.name"] = " + ".join(str(term["name"]) for _, term in terms if isinstance(term, dict))
    return found


def _phi(objective: dict[str, Json]) -> Json:
    terms = [term["objective"] for term in _dicts(objective.get("terms"))] or [objective]
    return next((term["phi"] for term in terms if isinstance(term, dict) and term.get("phi") is not None), None)


def _bank(key: str, stages: Stages) -> dict[str, Json]:
    fields = _fields(key, stages)
    made = _train(_input(fields["encoder"]), stages) | _corpus(_input(fields["corpus"]), stages)
    return made | {f"bank.{name}": fields[name] for name in ("dtype", "max_length", "precision")}


def _scores(key: str, stages: Stages) -> dict[str, Json]:
    fields = _fields(key, stages)
    if not fields:
        return {}
    train = _input(fields["encoder"])
    found = _train(train, stages) if train else _encoder(fields["encoder"])
    tasks = fields["tasks"]
    names = [task["name"] for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
    view = fields.get("view")
    if isinstance(view, dict):
        found |= {f"view.{name}": value for name, value in view.items() if value not in (None, "none") and not isinstance(value, dict)}
    found |= {"evaluation.tasks": names, "evaluation.max_length": fields.get("max_length"), "evaluation.precision": fields["precision"]}
    return found


def _encoder(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        return {}
    if "checkpoint" not in value:
        return {"encoder": value["name"]}  # no encoder: words alone
    found = {"encoder": value["checkpoint"], "encoder.revision": value["revision"], "encoder.pooling": value["pooling"]}
    if value.get("initialization") == "random":
        found["encoder.initialization"] = "random"
    if value.get("layers") is not None:
        found["encoder.layers"] = value["layers"]
    return found


def _objective(key: str, stages: Stages) -> dict[str, Json]:
    objective = _fields(key, stages).get("objective")
    return objective if isinstance(objective, dict) else {}


def _fields(key: str, stages: Stages) -> dict[str, Json]:
    fields = stages[key]["fields"] if key in stages else {}
    assert isinstance(fields, dict)
    return fields


def _input(value: Json) -> str:
    return str(value["stage"]) if isinstance(value, dict) and list(value) == ["stage"] else ""


def _task(task: Json, context: str) -> tuple[str, str, str]:
    assert isinstance(task, dict)
    return _named(task["source"], task.get("split")), str(task["revision"]), context


def _named(source: Json, split: Json) -> str:
    return f"{source} ({split})" if split else str(source)


def _texts(values: Mapping[str, Json]) -> dict[str, str]:
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: Json) -> str:
    return ", ".join(_text(item) for item in value) if isinstance(value, list) else str(value)
