"""Layers that are computed again in the backward pass: the same numbers, dropout and all, in a part of the memory."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, MODEL_MAPPING

from sentdist.errors import EncoderError
from sentdist.families import FAMILIES, FLAT_FAMILIES, OTHER
from sentdist.learning import precision
from sentdist.learning import precision as products
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.engine import TorchEngine
from sentdist.learning.grad_cache import encode_in_micro_batches
from sentdist.learning.loop import StepReport
from sentdist.learning.precision import autocast
from sentdist.plan.stage import Json
from sentdist.plan.stages import Train
from sentdist.stages.local import build_here
from sentdist.stages.train import TrainSession
from tests.support.tiny_data import tiny_plan, tiny_values, write_data
from tests.support.tiny_encoders import SENTENCES, tiny_encoder

pytestmark = pytest.mark.parity


def _gradients(folder: Path, *, recompute: bool, micro_batch: int | None = None) -> tuple[Tensor, list[Tensor], float, int]:
    """Embeddings, gradients, what is drawn next, and the bytes that are kept for the backward pass."""
    encoder = SentenceEncoder.load(
        folder,
        hidden_dropout=None if folder.name == "qwen3" else 0.3,
        attention_dropout=0.3,
        drophead=0.2 if folder.name in FLAT_FAMILIES else 0.0,
    ).train()
    if recompute:
        encoder.recompute_layers()
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    torch.manual_seed(5)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        embeddings = encode_in_micro_batches(encoder, encoder.tokenize(SENTENCES * 6), micro_batch=micro_batch)
        weights = {parameter.untyped_storage().data_ptr() for parameter in encoder.parameters()}
        num_bytes = sum(size for place, size in kept.items() if place not in weights)
    embeddings.square().mul(torch.linspace(-1, 1, embeddings.shape[1])).sum().backward()
    found = [parameter.grad for parameter in encoder.parameters() if parameter.grad is not None]
    return embeddings.detach(), found, float(torch.rand(())), num_bytes


@pytest.mark.in_turns
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("family", "micro_batch"),
    [
        ("bert", None),
        ("bert", 5),
        ("mpnet", 5),
        ("nomic_bert", None),
        ("megatron-bert", None),
        ("t5", None),
        ("umt5", 5),
        ("qwen3", None),
        ("qwen3", 5),
    ],
)
def test_value_gradient_and_random_numbers_are_the_same(family: str, micro_batch: int | None, tmp_path: Path) -> None:
    """Flat, flat in micro-batches, and padded; rotary positions, a decoder: to the last bit."""
    folder = tiny_encoder(tmp_path / family, family, num_hidden_layers=6)
    whole, again = (_gradients(folder, recompute=recompute, micro_batch=micro_batch) for recompute in (False, True))
    assert torch.equal(whole[0], again[0]) and whole[2] == again[2]
    assert len(whole[1]) == len(again[1]) and all(torch.equal(one, other) for one, other in zip(whole[1], again[1], strict=True))
    if micro_batch is None:
        assert again[3] < whole[3] / 3, "six layers' insides against what goes into them"


@pytest.mark.in_turns
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("has_instructions", [True, False])
@pytest.mark.parametrize("family", ["bert", "distilbert", "nomic_bert", "megatron-bert", "t5", "qwen3"])
def test_bf16_is_computed_again_as_it_was(family: str, has_instructions: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor without instructions for bfloat16 linear layers are computed in float32, the second time, too."""
    for module in (products, precision):
        monkeypatch.setattr(module, "has_bfloat16", lambda: has_instructions)
    folder = tiny_encoder(tmp_path / family, family)
    with autocast("bf16", torch.device("cpu")):
        whole, again = (_gradients(folder, recompute=recompute) for recompute in (False, True))
    assert torch.equal(whole[0], again[0])
    assert all(torch.equal(one, other) for one, other in zip(whole[1], again[1], strict=True))


def test_a_model_that_cannot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"runtime\.recompute_layers: found an AlbertModel"):
        SentenceEncoder.load(tiny_encoder(tmp_path, "albert")).recompute_layers()


@pytest.mark.parametrize("family", [*(name for name, one in FAMILIES.items() if one.refused is None), "deberta-v2"])
def test_planning_knows_which_families_cannot(family: str, tmp_path: Path) -> None:
    is_flat = family in FLAT_FAMILIES
    model = type(SentenceEncoder.load(tiny_encoder(tmp_path, family)).model) if is_flat else MODEL_MAPPING[CONFIG_MAPPING[family]]
    assert isinstance(model, type) and model.supports_gradient_checkpointing == FAMILIES.get(family, OTHER).may_recompute_layers


@pytest.mark.usefixtures("one_thread")
def test_a_runtime_asks_for_it(tmp_path: Path) -> None:
    """Of the first step of a training: less is kept for the backward pass, and the loss is the same."""
    folder, data = tiny_encoder(tmp_path / "bert", "bert", num_hidden_layers=6), write_data(tmp_path / "data")
    found = []
    for again in (False, True):
        runtime: Json = {"engine": "torch", "recompute_layers": again}
        plan, context = tiny_plan(tiny_values(folder, runtime=runtime), data=data, store=tmp_path / "store")
        stage = next(stage for stage in plan.stages if isinstance(stage, Train) and not stage.banks)
        build_here(stage.corpus, context)
        session = TrainSession(stage, context, make_engine=TorchEngine, bank=None)
        num_bytes = 0

        def keep(tensor: Tensor) -> Tensor:
            nonlocal num_bytes
            num_bytes += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), closing(session.events()) as events:
            first = next(events)
        assert isinstance(first, StepReport)
        found.append((first.loss, num_bytes))
    assert found[1][0] == found[0][0] and found[1][1] < found[0][1]
