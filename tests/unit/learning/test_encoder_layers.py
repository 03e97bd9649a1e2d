"""Encoders cut down to their first layers, and what is no encoder alone."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from sentdist.errors import EncoderError, RecipeError
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.write_folder import EncoderCard
from sentdist.plan.specs import EncoderSpec, Task
from sentdist.plan.stage import Json
from sentdist.plan.stages import Scores, Train
from sentdist.stages.planning.worker_memory import encoder_size
from tests.support.building import run_local
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.tiny_encoders import tiny_encoder

CARD = EncoderCard(base_model="tiny", objective="none")
SENTENCES = ["a dog runs", "two cats sleep on a red mat", "a man"]


@pytest.mark.parametrize("family", ["tiny_encoder_dir", "tiny_roberta_dir", "tiny_padded_dir"])
def test_the_first_layers_are_kept_as_they_are(family: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder: Path = request.getfixturevalue(family)
    whole, cut = SentenceEncoder.load(folder).eval(), SentenceEncoder.load(folder, layers=1).eval()
    assert (whole.model.config.num_hidden_layers, cut.model.config.num_hidden_layers) == (2, 1)
    weights = dict(whole.named_parameters())
    kept = dict(cut.named_parameters())
    assert kept.keys() == {name for name in weights if ".layer.1." not in name}
    assert all(torch.equal(weight, weights[name]) for name, weight in kept.items())
    cut.save(tmp_path / "cut", card=CARD)
    again = SentenceEncoder.load(tmp_path / "cut").eval()
    assert again.model.config.num_hidden_layers == 1
    with torch.no_grad():
        torch.testing.assert_close(again(again.tokenize(SENTENCES)), cut(cut.tokenize(SENTENCES)), rtol=0, atol=0)


@pytest.mark.in_turns
@pytest.mark.parametrize("family", ["bert", "mpnet", "qwen3"])
def test_what_a_layer_gives_goes_once_the_next_has_read_it(family: str, tmp_path: Path) -> None:
    """Without a derivative: of twelve layers eleven would be held for nothing."""
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path, family, num_hidden_layers=4)).eval()
    layers = [module for module in encoder.model.modules() if isinstance(module, GradientCheckpointingLayer)]
    given: list[weakref.ref[torch.Tensor]] = []
    held: list[int] = []

    def note(layer: torch.nn.Module, args: object, out: torch.Tensor) -> None:
        gc.collect()
        held.append(sum(one() is not None for one in given))
        given.append(weakref.ref(out))

    for layer in layers:
        layer.register_forward_hook(note)
    with torch.no_grad():
        encoder(encoder.tokenize(SENTENCES))
    assert len(layers) == 4 and held == [0, 1, 1, 1]


def test_more_layers_than_there_are_is_refused(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"2 transformer layers, 3 wanted.*from 1 to 2"):
        SentenceEncoder.load(tiny_encoder_dir, layers=3)
    values = tiny_values(tiny_encoder_dir, methods={"base": {"encoder": {"layers": 3}}}, baseline="base")
    with pytest.raises(RecipeError, match=r"encoder.layers: found 3, where .* has 2 layers"):
        tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")


def test_only_a_cut_encoder_has_a_key_of_its_own() -> None:
    def key(**encoder: int) -> str:
        spec = EncoderSpec(checkpoint="minilm-l6", revision="1", **encoder)
        return Scores(encoder=spec, tasks=(Task(name="stsb", kind="sts", source="sts/stsb", revision="1"),)).key

    assert key() != key(layers=2)
    assert "layers" not in str(Scores(encoder=EncoderSpec(checkpoint="a", revision="1"), tasks=()).canonical())
    assert encoder_size({"num_hidden_layers": 6}, layers=2).num_layers == 2


def test_a_training_continues_from_a_cut_encoder(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    first: dict[str, Json] = {"objective": {"name": "info_nce", "temperature": 0.05}, "select": False}
    methods: Json = {"base": {}, "first": first, "second": first | {"start": "first"}}
    values = tiny_values(tiny_encoder_dir, methods=methods, baseline="base")
    values["encoder"] = {"checkpoint": str(tiny_encoder_dir), "layers": 1}
    plan, context = tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
    made = {artifact.record.key: artifact for artifact in run_local(plan, context)}
    trained = [stage for stage in plan.stages if isinstance(stage, Train)]
    depths = [SentenceEncoder.load(context.store.folder(made[stage.key])).model.config.num_hidden_layers for stage in trained]
    assert depths == [1, 1]
    scores = [str(made[trial.key].record.results["stsb"]) for trial in plan.trials]
    assert len(set(scores)) == 3
