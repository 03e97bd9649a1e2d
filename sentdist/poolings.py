"""How the states of a sentence's tokens become its embedding: an entry of `POOLINGS` a pooling, with all that is known of it.

Recipes, encoders, exported folders and ONNX graphs read this table; nothing else lists poolings. Torch is imported where tokens are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """How the token states of some layers become one vector a sentence: of several layers their mean counts.

    mode: what sentence-transformers' Pooling calls it. flat: from (T, D) states of all tokens a layer, and the S + 1 boundaries of
    sentences, (S, D) float32. padded: the same from (S, T, D) states a layer and the mask (S, T).
    """

    mode: str
    flat: Callable[[Sequence[Tensor], Tensor], Tensor]
    padded: Callable[[Sequence[Tensor], Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Dense:
    """A dense layer, activation(W x + b): a new one from the width of the layers to the same width, that of a folder as it is.

    activation: a class of torch.nn. has_bias: of a new one.
    """

    activation: Literal["Tanh", "Identity"]
    has_bias: bool


TANH = Dense(activation="Tanh", has_bias=True)  # SimCSE's


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """What is known of a pooling.

    in_folder: what an exported folder of it holds, in the words of an error; None: what that of another pooling holds, for the two
    differ in training alone. layers: numbers of the layers that it reads, from 1, of so many transformer layers; None: the last alone.
    last_in_training: whether training reads the last layer alone all the same. head: when `dense`, a layer of its own, follows.
    """

    name: str
    in_folder: str | None
    reduction: Reduction
    layers: Callable[[int], Sequence[int]] | None = None
    last_in_training: bool = False
    head: Literal["never", "training", "always"] = "never"
    dense: Dense = TANH

    @property
    def has_head(self) -> bool:
        """Whether it trains a dense layer of its own."""
        return self.head != "never"

    @property
    def gives_dense(self) -> bool:
        """Whether embeddings are what the dense layer gives, and have its width; else it is for training alone, or there is none."""
        return self.head == "always"

    @property
    def without_head(self) -> str:
        """The pooling that reads the same and has no dense layer."""
        return next(one.name for one in POOLINGS.values() if not one.has_head and (one.reduction, one.layers) == (self.reduction, None))

    @property
    def is_other_at_test(self) -> bool:
        """Whether embeddings at test are not those that were trained."""
        return self.head == "training" or self.last_in_training

    @property
    def modules(self) -> tuple[tuple[str, ...], str]:
        """What sentence-transformers computes it by at test: kinds of modules behind the transformer, and the mode of Pooling."""
        before = () if self.layers is None else ("WeightedLayerPooling",)
        behind = ("Dense",) if self.gives_dense else ()
        return (*before, "Pooling", *behind), self.reduction.mode

    def read(self, layers: Sequence[Tensor], *, training: bool) -> list[Tensor]:
        """The states that it reads. layers: what a model calls hidden_states (embeddings first), or the last alone where that is enough."""
        if self.layers is None or (training and self.last_in_training):
            return [layers[-1]]
        return [layers[number] for number in self.layers(len(layers) - 1)]


def _mean_of(layers: Sequence[Tensor]) -> Tensor:
    import torch

    return torch.stack(list(layers)).mean(dim=0) if len(layers) > 1 else layers[0]


def _segment_mean(layers: Sequence[Tensor], boundaries: Tensor) -> Tensor:
    import torch

    states_TD = _mean_of(layers).float()
    return torch.segment_reduce(states_TD, "mean", lengths=boundaries.diff().long(), axis=0, unsafe=True)


def _masked_mean(layers: Sequence[Tensor], mask_ST: Tensor) -> Tensor:
    states_STD = _mean_of(layers)
    weights_ST1 = mask_ST.unsqueeze(-1).to(states_STD.dtype)
    return (states_STD * weights_ST1).sum(dim=1) / weights_ST1.sum(dim=1)


MEAN = Reduction(mode="mean", flat=_segment_mean, padded=_masked_mean)
FIRST = Reduction(
    mode="cls",
    flat=lambda layers, boundaries: _mean_of([states_TD.index_select(0, boundaries[:-1]).float() for states_TD in layers]),
    padded=lambda layers, mask: _mean_of([states_STD[:, 0] for states_STD in layers]),
)


def _last_token(layers: Sequence[Tensor], mask_ST: Tensor) -> Tensor:
    """Padding may stand before or behind a sentence."""
    import torch

    last_S = (mask_ST * torch.arange(1, mask_ST.shape[1] + 1, device=mask_ST.device)).argmax(dim=1)
    return _mean_of([states_STD[torch.arange(len(last_S), device=last_S.device), last_S] for states_STD in layers])


LAST = Reduction(
    mode="lasttoken",
    flat=lambda layers, boundaries: _mean_of([states_TD.index_select(0, boundaries[1:] - 1).float() for states_TD in layers]),
    padded=_last_token,
)

POOLINGS: dict[str, Pooling] = {
    pooling.name: pooling
    for pooling in (
        # Reimers & Gurevych 2019 (arXiv 1908.10084).
        Pooling(name="mean", in_folder="mean", reduction=MEAN),
        Pooling(name="cls", in_folder="cls", reduction=FIRST),
        # SimCSE, supervised and unsupervised (Gao et al. 2021, arXiv 2104.08821).
        Pooling(name="cls_mlp", in_folder="cls with one dense layer and tanh", reduction=FIRST, head="always"),
        Pooling(name="cls_mlp_train_only", in_folder=None, reduction=FIRST, head="training"),
        Pooling(name="first_last", in_folder="the first and last layer's mean", reduction=MEAN, layers=lambda num: (1, num)),
        # RSE's transfer tasks.
        Pooling(
            name="cls_last_five",
            in_folder="the last five layers' CLS",
            reduction=FIRST,
            layers=lambda num: range(max(1, num - 4), num + 1),
            last_in_training=True,
            head="training",
        ),
        # Sentence-T5 and GTR (Ni et al. 2021, arXiv 2108.08877 and 2112.07899).
        Pooling(
            name="mean_dense",
            in_folder="mean with one dense layer and no activation",
            reduction=MEAN,
            head="always",
            dense=Dense(activation="Identity", has_bias=False),
        ),
        # Decoders, whose last token alone has seen the sentence (Muennighoff 2022, arXiv 2202.08904; Zhang et al. 2025, arXiv 2506.05176).
        Pooling(name="last_token", in_folder="the last token", reduction=LAST),
    )
}

if TYPE_CHECKING:
    PoolingName = str
else:
    PoolingName = Literal[tuple(POOLINGS)]
