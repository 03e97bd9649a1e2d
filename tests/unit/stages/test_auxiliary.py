"""Auxiliary tasks and masked language modelling from the recipe to the record: in one process, on the tiny data."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from sentdist.data.tagging import FileTargets
from sentdist.errors import DataError, RecipeError
from sentdist.evaluation.linear_models import RegressionProbe
from sentdist.families import POOLINGS
from sentdist.learning.checkpoint import DevScore
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import TorchEngine
from sentdist.plan.recipe import recipe_from_values
from sentdist.plan.specs import Probes
from sentdist.plan.stage import Json
from sentdist.plan.stages import Targets, Train
from sentdist.report.sweep_report import report_sweep
from sentdist.stages.scores import build as probing
from sentdist.stages.train import TrainSession
from sentdist.store.sweep import save_sweep, sweep_record
from tests.support.building import run_local
from tests.support.mask_tokens import maskable_encoder
from tests.support.planning import plan_of
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

CONTRASTIVE: Json = {"projected": True, "objective": {"name": "info_nce", "temperature": 0.05}}
STILL: Json = {"attention_dropout": 0.0, "hidden_dropout": 0.0}


def auxiliary(**fields: Json) -> dict[str, Json]:
    return {"name": "sum", "terms": [CONTRASTIVE, {"weight": 0.01, "objective": {"name": "auxiliary", **fields}}]}


def values(encoder: Path | str = "minilm-l6", **methods: Json) -> dict[str, Json]:
    return tiny_values(
        Path(encoder),
        corpus={"source": "nli/triplets", "columns": ["sent0", "sent0"]},
        evaluation={"tasks": ["stsb"], "probes": {"num_sentences": 48, "num_words": 10}},
        targets={"tagger": "tests.support.tiny_tagger:tag", "num_words": 12},
        methods=methods
        or {
            "base": {},
            "simcse": {"objective": {"name": "info_nce", "temperature": 0.05}, "encoder": {"pooling": "cls_mlp_train_only"}},
            "masked": {"objective": {"name": "sum", "terms": [CONTRASTIVE, {"weight": 0.1, "objective": {"name": "mlm"}}]}},
            "tasks": {"objective": auxiliary(adversary="none")},
            "adversaries": {"objective": auxiliary(classifier_learning_rate=0.01)},
            "reversal": {"objective": auxiliary(adversary="reversal", warmup_steps=3, channels=[8, 24])},
            "tags": {"of": "adversaries", "view": {"channels": [0, 5]}},
            "words": {"of": "adversaries", "view": {"channels": [5, 32]}},
        },
        baseline=None,
        paper="auxiliary",
    ) | {"encoder": {"checkpoint": str(encoder), "pooling": "cls"}}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return maskable_encoder(tmp_path_factory.mktemp("maskable"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


def test_every_row_of_a_recipe_comes_out_with_scores_and_probes(encoder: Path, data: Path, tmp_path: Path) -> None:
    plan, context = tiny_plan(values(encoder), data=data, store=tmp_path / "store")
    assert [stage.kind for stage in plan.stages].count("targets") == 1
    artifacts = {artifact.record.key: artifact for artifact in run_local(plan, context)}
    (targets,) = (stage for stage in plan.stages if isinstance(stage, Targets))
    results = artifacts[targets.key].record.results
    assert results["tags"] == ["ADP", "ADV", "DET", "NOUN", "VERB"]
    assert results["num_sentences"] == 48
    assert not (context.store.folder(artifacts[targets.key]) / "shards").exists()
    table = FileTargets(context.store.folder(artifacts[targets.key]))
    assert "the" not in table.vocabulary
    scores = {trial.method: artifacts[trial.key].record.results for trial in plan.trials}
    assert len(scores) == 8
    assert all(isinstance(found["stsb"], float) for found in scores.values())
    for method in ("base", "simcse", "masked", "tasks", "adversaries", "reversal"):
        assert {f"probes.{kind}_from_{part}" for kind in ("tags", "words") for part in ("pos", "bow")} <= scores[method].keys()
    assert not any(name.startswith("probes") for name in scores["tags"])
    assert len({scores[name]["stsb"] for name in ("adversaries", "tags", "words")}) == 3
    save_sweep(context.store, sweep_record(plan))
    report = report_sweep(context.store, "tiny")
    assert "Table 1: Channels of the embedding on seven STS tasks" in report.markdown
    assert {"probes.svg", "probes.csv"} <= report.files.keys()
    assert "P19-1041" in report.markdown


def test_a_training_resumes_with_its_adversaries(encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adversaries, masks and dropout included: interrupted after three steps, or not at all. They are read on the host, wherever the
    encoder lies: their optimizer looks there at each step for how many it has done."""
    objective = auxiliary()
    objective["terms"].append({"weight": 0.1, "objective": {"name": "mlm", "mask_fraction": 0.3}})  # type: ignore[union-attr]
    plan, context = tiny_plan(values(encoder, adversaries={"objective": objective}), data=data, store=tmp_path / "store")
    (stage,) = (stage for stage in plan.stages if isinstance(stage, Train))
    run_local_until_train(plan, context)

    def session() -> TrainSession:
        return TrainSession(stage, context, make_engine=TorchEngine, bank=None)

    reports = [event for event in session().events() if not isinstance(event, DevScore)]
    first = session()  # seeds torch, as the one before did
    for event in first.events():
        if not isinstance(event, DevScore) and event.step == 2:
            first.save(tmp_path / "checkpoint")
            break
    second = session()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(SentenceEncoder, "device", property(lambda encoder: torch.device("meta")))
        second.load(tmp_path / "checkpoint")
    rest = [event for event in second.events() if not isinstance(event, DevScore)]
    assert [report.loss for report in rest] == [report.loss for report in reports[3:]]


def run_local_until_train(plan: object, context: object) -> None:
    from sentdist.stages.local import build_here

    for stage in plan.stages:  # type: ignore[attr-defined]
        if stage.kind in ("corpus", "targets"):
            build_here(stage, context)  # type: ignore[arg-type]


def test_a_random_encoder_is_pretrained_and_trained_on(encoder: Path, data: Path, tmp_path: Path) -> None:
    recipe = values(encoder) | {
        "encoder": {"checkpoint": str(encoder), "initialization": "random"},
        "evaluation": {"tasks": ["stsb"]},
        "corpora": {"text": {"source": "nli/triplets", "columns": ["sent0"]}},
        "methods": {
            "untrained": {},
            "pretrained": {"objective": {"name": "mlm"}, "corpus": "text", "select": False},
            "simcse": {"objective": {"name": "info_nce", "temperature": 0.05}, "start": "pretrained"},
        },
    }
    del recipe["targets"]
    plan, context = tiny_plan(recipe, data=data, store=tmp_path / "store")
    artifacts = {artifact.record.key: artifact for artifact in run_local(plan, context)}
    scores = {trial.method: artifacts[trial.key].record.results["stsb"] for trial in plan.trials}
    assert len(set(scores.values())) == 3
    pretrained = next(stage for stage in plan.stages if isinstance(stage, Train) and stage.objective.name == "mlm")
    assert artifacts[pretrained.key].record.results["num_steps"] == 6
    assert (context.store.folder(artifacts[pretrained.key]) / "heads.safetensors").exists()


def test_targets_are_shared_by_all_methods_and_seeds() -> None:
    plan = plan_of(recipe_from_values(values() | {"seeds": [0, 1]}, where="x.yaml"))
    (targets,) = (stage for stage in plan.stages if isinstance(stage, Targets))
    assert plan.mentions[targets.key] > 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": auxiliary(adversary="none", pos_adversary=2.0)}, "pos_adversary has no effect"),
        ({"objective": auxiliary(adversary="none", warmup_steps=2)}, "warmup_steps has no effect"),
        ({"objective": auxiliary(pos_adversary=0, bow_adversary=0)}, "no weight for either adversary"),
        ({"objective": auxiliary(pos_weight=-1)}, "pos_weight"),
        ({"objective": auxiliary(channels=[1, 2, 3])}, "channels"),
        ({"objective": auxiliary(form="entropy")}, "form"),
    ],
)
def test_fields_that_make_no_sense_are_refused(changes: Json, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe_from_values(values(aux=changes), where="x.yaml")


def planned(encoder: Path, data: Path, recipe: dict[str, Json]) -> None:
    tiny_plan(recipe, data=data, store="unused")


@pytest.mark.parametrize("channels", [[5, 26], [0, 32], [33, -1], [128, 640]])
def test_channels_that_do_not_add_up_are_refused_while_planning(encoder: Path, data: Path, channels: list[int]) -> None:
    with pytest.raises(RecipeError, match=r"methods\.aux\.objective\.channels.*add up to the encoder's width, 32"):
        planned(encoder, data, values(encoder, aux={"objective": auxiliary(channels=list(channels))}))


def test_views_of_channels_that_are_not_there_are_refused_while_planning(encoder: Path, data: Path) -> None:
    methods: dict[str, Json] = {"aux": {"objective": auxiliary()}, "part": {"of": "aux", "view": {"channels": [5, 33]}}}
    with pytest.raises(RecipeError, match=r"methods\.part\.view\.channels: found 5 to 33; expected two numbers from 0 to 32"):
        planned(encoder, data, values(encoder, **methods))


def test_probes_of_channels_that_do_not_add_up_are_refused_while_planning(encoder: Path, data: Path) -> None:
    recipe = values(encoder, aux={"objective": auxiliary()})
    recipe["evaluation"] = {"tasks": ["stsb"], "probes": {"channels": [5, 28]}}
    with pytest.raises(RecipeError, match=r"evaluation\.probes\.channels: found 5 \+ 28 = 33"):
        planned(encoder, data, recipe)


@pytest.mark.parametrize("pooling", [name for name, one in POOLINGS.items() if one.head == "training"])
def test_channels_of_a_dropped_layer_are_refused(pooling: str) -> None:
    recipe = values(aux={"objective": auxiliary()}) | {"encoder": {"pooling": pooling}}
    with pytest.raises(RecipeError, match="dropped at test"):
        plan_of(recipe_from_values(recipe, where="x.yaml"))


def test_targets_that_nobody_uses_are_refused() -> None:
    recipe = values(plain={"objective": {"name": "info_nce"}}) | {"evaluation": {"tasks": ["stsb"]}}
    with pytest.raises(RecipeError, match="targets: has no effect"):
        recipe_from_values(recipe, where="x.yaml")


@pytest.mark.parametrize(
    ("tagger", "error", "message"),
    [
        ("spacy", RecipeError, r"targets\.tagger: tagger: found .spacy."),
        ("no_such_module:tag", DataError, r"targets\.tagger: tagger no_such_module:tag: found ModuleNotFoundError"),
    ],
)
def test_a_tagger_that_is_missing_is_refused_while_planning(
    encoder: Path, data: Path, tagger: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        planned(encoder, data, values(encoder, aux={"objective": auxiliary()}) | {"targets": {"tagger": tagger}})


def test_a_contrastive_objective_on_sentences_alone_is_refused() -> None:
    recipe = values(aux={"objective": auxiliary()}) | {"corpus": {"source": "nli/triplets", "columns": ["sent0"]}}
    with pytest.raises(RecipeError, match="sentences alone"):
        plan_of(recipe_from_values(recipe, where="x.yaml"))


def test_a_sweep_reaches_into_the_terms_of_a_sum() -> None:
    recipe = values(aux={"objective": auxiliary()}) | {"sweep": {"methods.aux.objective.terms.1.weight": [0.003, 0.01, 0.03]}}
    plan = plan_of(recipe_from_values(recipe, where="x.yaml"))
    weights = [stage.objective.terms[1].weight for stage in plan.stages if isinstance(stage, Train)]  # type: ignore[union-attr]
    assert sorted(weights) == [0.003, 0.01, 0.03]
    assert [trial.cell for trial in plan.trials] == ["aux (weight=0.003)", "aux (weight=0.01)", "aux (weight=0.03)"]
    for path, message in (("terms.2.weight", '"2" in a list of 2'), ("terms.first.weight", '"first" in a list')):
        wrong = values(aux={"objective": auxiliary()}) | {"sweep": {f"methods.aux.objective.{path}": [1.0, 2.0]}}
        with pytest.raises(RecipeError, match=message):
            plan_of(recipe_from_values(wrong, where="x.yaml"))


def test_a_projected_term_is_pooling_with_a_layer_that_is_dropped(encoder: Path, data: Path, tmp_path: Path) -> None:
    """SimCSE either way: the same loss from the same layer."""
    losses = {}
    for pooling, objective in (
        ("cls", {"name": "sum", "terms": [CONTRASTIVE, {"weight": 0.0, "objective": {"name": "mlm"}}]}),
        ("cls_mlp_train_only", {"name": "info_nce", "temperature": 0.05}),
    ):
        recipe = values(encoder, simcse={"objective": objective, "regularizers": STILL}) | {
            "encoder": {"checkpoint": str(encoder), "pooling": pooling}
        }
        plan, context = tiny_plan(recipe, data=data, store=tmp_path / pooling)
        run_local_until_train(plan, context)
        (stage,) = (stage for stage in plan.stages if isinstance(stage, Train))
        session = TrainSession(stage, context, make_engine=TorchEngine, bank=None)
        named = dict(session.engine.learner.named_parameters())
        layer = [
            weight
            for name, weight in named.items()
            if name.endswith("head.dense.weight") and len(weight) == 32 and "objectives" not in name
        ]
        chosen = layer if pooling == "cls_mlp_train_only" else [named["heads.terms.0.head.dense.weight"]]
        with torch.no_grad():
            chosen[0].copy_(torch.from_numpy(np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32) * 0.3))
        losses[pooling] = next(event.loss for event in session.events() if not isinstance(event, DevScore))
    assert losses["cls"] == pytest.approx(losses["cls_mlp_train_only"], rel=1e-5)  # float32


def test_probes_ask_for_the_most_frequent_words_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    draw, asked = np.random.default_rng(0), []
    shares_SV = draw.dirichlet(np.full(30, 0.2), size=40)
    sentences, words = np.nonzero(shares_SV)

    def probe(channels: np.ndarray, words_SV: np.ndarray, *, seed: int) -> RegressionProbe:
        asked.append(words_SV)
        return RegressionProbe(r2=0.0, num_test=10)

    rows = SimpleNamespace(
        pos=draw.dirichlet(np.ones(4), size=40), bow_rows=sentences, bow_words=words, bow_shares=shares_SV[sentences, words]
    )
    targets: Any = SimpleNamespace(num_words=30, rows=lambda ids: rows)
    monkeypatch.setattr(probing, "probe_regression", probe)
    probing._found(Probes(num_words=25), draw.normal(size=(40, 24)), targets, np.arange(40))
    for words_SV in asked:
        np.testing.assert_array_equal(words_SV, shares_SV[:, :25])
    assert len(asked) == 2
