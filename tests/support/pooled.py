"""What each pooling makes of padded token states, written down a second time: independent of the project, and once for all tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def pooled(layers: Sequence[Tensor], mask_ST: Tensor, pooling: str, *, training: bool = False) -> Tensor:
    """(S, D) before any dense layer. layers: hidden_states of a model, embeddings first."""
    last_STD, mask_ST1 = layers[-1], mask_ST[:, :, None].to(layers[-1].dtype)
    match pooling:
        case "mean" | "mean_dense":
            return (last_STD * mask_ST1).sum(1) / mask_ST1.sum(1)
        case "first_last":
            return ((layers[1] + last_STD) / 2 * mask_ST1).sum(1) / mask_ST1.sum(1)
        case "cls_last_five" if not training:
            return torch.stack([layer[:, 0] for layer in layers[1:][-5:]]).mean(0)
        case "cls" | "cls_mlp" | "cls_mlp_train_only" | "cls_last_five":
            return last_STD[:, 0]
        case "last_token":
            return torch.stack([states_TD[mask_T.bool()][-1] for states_TD, mask_T in zip(last_STD, mask_ST, strict=True)])
    raise AssertionError(f"write down what pooling {pooling} is")


def with_dense_layer(embeddings_SD: Tensor, head: Mapping[str, Tensor], pooling: str, *, training: bool = False) -> Tensor:
    """What follows: W x, tanh(W x + b), or nothing. head: W as dense.weight and b as dense.bias, where the pooling has them."""
    if pooling == "mean_dense":
        assert "dense.bias" not in head
        return embeddings_SD @ head["dense.weight"].T
    if pooling == "cls_mlp" or (training and pooling in ("cls_mlp_train_only", "cls_last_five")):
        return torch.tanh(embeddings_SD @ head["dense.weight"].T + head["dense.bias"])
    return embeddings_SD
