"""Writing an encoder as a folder that sentence-transformers and transformers load.

The folder holds what acts at test: the head of `cls_mlp` and `mean_dense` as a Dense module, none for `cls_mlp_train_only`.
A Normalize module comes last where the base checkpoint has one: who searches by dot products with the base goes on so with what was
trained of it. `SentenceEncoder` itself never normalizes: losses and cosines read what pooling gives.
It is written by sentence-transformers 6.2, then put into the layout that older versions read, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, modeling_utils

from sentdist.learning.encoder.card import EncoderCard, add_training_facts, card_data
from sentdist.learning.encoder.declared import write_classic
from sentdist.learning.encoder.pooling import PoolingHead
from sentdist.poolings import POOLINGS

__all__ = ["EncoderCard", "write_folder"]


def write_folder(
    path: Path,
    *,
    model: PreTrainedModel,
    pooler: nn.Module | None,
    tokenizer: PreTrainedTokenizerBase,
    pooling: str,
    head: PoolingHead | None,
    max_length: int,
    normalize: bool,
    card: EncoderCard,
) -> None:
    """Write the folder `path`: weights (float32 safetensors), configuration, tokenizer, modules and a model card.

    pooler: the model's own unused pooler, put back so that AutoModel finds every weight it expects.
    """
    from sentence_transformers import SentenceTransformer  # seconds to import, and needed only when something is saved
    from sentence_transformers.base.modules.transformer import Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    with TemporaryDirectory() as plain:
        _save_plain(Path(plain), model, pooler, tokenizer, all_layers=POOLINGS[pooling].layers is not None)
        transformer = Transformer(plain, model_kwargs={"dtype": torch.float32}, max_seq_length=max_length)
    transformer.model.config._name_or_path = card.base_model
    saved = SentenceTransformer(
        modules=[transformer, *_pooling_modules(model, pooling, head), *([Normalize()] if normalize else [])],
        device="cpu",
        similarity_fn_name="cosine",
        model_card_data=card_data(card),
    )
    with no_wrappers():
        saved.save_pretrained(str(path))
    write_classic(path, max_length)
    add_training_facts(path, card)


def _save_plain(
    folder: Path, model: PreTrainedModel, pooler: nn.Module | None, tokenizer: PreTrainedTokenizerBase, *, all_layers: bool
) -> None:
    state = dict(model.state_dict())
    if pooler is not None:
        state |= {f"pooler.{name}": weight for name, weight in pooler.state_dict().items()}
    before = model.config.output_hidden_states
    model.config.output_hidden_states = all_layers  # sentence-transformers reads it to hand all layers to WeightedLayerPooling
    try:
        with no_wrappers():
            model.save_pretrained(folder, state_dict=state)
    finally:
        model.config.output_hidden_states = before
    tokenizer.save_pretrained(folder)


@contextmanager
def no_wrappers() -> Iterator[None]:
    """Have transformers save models as they are. It would look whether DeepSpeed wraps them, and import it for that: 2.3 s."""
    unwrap = modeling_utils.unwrap_model
    modeling_utils.unwrap_model = lambda model, recursive=False: model
    try:
        yield
    finally:
        modeling_utils.unwrap_model = unwrap


def _pooling_modules(model: PreTrainedModel, pooling: str, head: PoolingHead | None) -> list[nn.Module]:
    from sentence_transformers.base.modules.dense import Dense
    from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling

    width, num_layers = int(model.config.hidden_size), int(model.config.num_hidden_layers)
    known, modules = POOLINGS[pooling], list[nn.Module]()
    if known.layers is not None:
        weights = torch.zeros(num_layers)
        for number in known.layers(num_layers):
            weights[number - 1] += 1.0
        modules.append(
            WeightedLayerPooling(
                width, num_hidden_layers=num_layers, layer_start=1, layer_weights=nn.Parameter(weights, requires_grad=False)
            )
        )
    modules.append(Pooling(width, pooling_mode=known.reduction.mode))
    if known.gives_dense:
        assert head is not None, "the encoder is constructed with its head"
        dense = Dense(width, head.dense.out_features, bias=head.dense.bias is not None, activation_function=head.activation)
        dense.linear.load_state_dict(head.dense.state_dict())
        modules.append(dense)
    return modules
