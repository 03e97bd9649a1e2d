"""Tables of encoder families (transformers' model_type) and poolings, read before an encoder is loaded; no torch at import.

Loading, planning, forecasts and the page on encoders read `FAMILIES`; nothing else lists families. Family-specific code and checks of
configurations are in learning/encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from sentdist.errors import SentdistError, brief

if TYPE_CHECKING:
    from torch import Tensor


Size = Literal["num_tokens", "num_positions", "num_layers", "width", "inner_width", "num_heads", "num_key_heads", "head_width"]


@dataclass(frozen=True, kw_only=True)
class Family:
    """Facts about the encoders of one model_type; the defaults hold for families that the table does not name."""

    is_flat: bool = False  # tested with unpadded, concatenated sentences; others run padded, in groups of similar length
    is_decoder: bool = False  # causal attention
    is_read_without_decoder: bool = False  # the encoder of an encoder-decoder
    # Position embeddings: a table; a table whose first rows are for padding; rotary; a bias for each distance, added to attention scores.
    positions: Literal["table", "table_behind_padding", "rotated", "distances"] = "table"
    adds_distances: bool = False  # adds a bias for each distance to attention scores, which torch's GPU kernels do not support
    has_one_kind_of_positions: bool = False  # ignores `position_embedding_type`, which could name others until transformers 5
    is_gated: bool = False  # the feed-forward layer multiplies two linear layers, one of them activated: three matrices
    drops_within: bool = False  # dropout also between the matrices of the feed-forward layer
    may_recompute_layers: bool = True  # in the backward pass, by transformers; SentenceEncoder.recompute_layers asks the class itself
    most_tokens: int | None = None  # length in pretraining, if files give no length and there is no table of positions
    own_code: Literal["mpnet", "t5"] | None = None  # how learning/encoder/pretrained.py adapts a loaded model
    defaults: Mapping[str, object] = field(default_factory=dict)  # values of fields read here that a config.json leaves out
    looks_both_ways_if_asked: bool = False  # a decoder that `use_bidirectional_attention` makes an encoder, also without padding
    padding_token: int | None = None  # from which positions are numbered, regardless of `pad_token_id`
    frequencies: Mapping[str, str] = field(default_factory=dict)  # rope type in older files -> the type that transformers reads
    refused: str | None = None  # why it is not supported, mostly: a sentence's embedding depends on the length of its neighbours


OTHER = Family()
_BERT = Family(is_flat=True, has_one_kind_of_positions=True)
_ROBERTA = replace(_BERT, positions="table_behind_padding")
_ROTATED = Family(is_flat=True, positions="rotated")
_GATED = replace(_ROTATED, is_gated=True)
_DECODER = replace(_GATED, is_decoder=True)
_WITH_WINDOWS = replace(_DECODER, defaults={"sliding_window": 4096})
_WITH_WINDOWS_IF_ASKED = replace(_DECODER, defaults={"use_sliding_window": False, "sliding_window": 4096})
_T5 = Family(is_read_without_decoder=True, positions="distances", adds_distances=True, drops_within=True, most_tokens=512, own_code="t5")
_MT5 = replace(_T5, defaults={"feed_forward_proj": "gated-gelu"})
_PADDED_BERT = replace(_BERT, is_flat=False)
_PADDED_ROBERTA = replace(_ROBERTA, is_flat=False)


FAMILIES: Mapping[str, Family] = {
    "albert": replace(_BERT, may_recompute_layers=False),
    "bert": _BERT,
    "big_bird": Family(refused="its attention in blocks depends on the longest sentence of a batch"),
    "camembert": _ROBERTA,
    "canine": Family(refused="it reads characters and has no vocabulary"),
    "convbert": Family(refused="its convolutions read padding"),
    "data2vec-text": _ROBERTA,
    "distilbert": Family(is_flat=True),
    "electra": _BERT,
    "embedding_gemma2": Family(refused="it also reads images and sound, and its vectors have another width than its layers"),
    "embedding_gemma2_text": Family(refused="its vectors have another width than its layers"),
    "ernie": _BERT,
    "eurobert": _GATED,
    "flaubert": Family(may_recompute_layers=False),
    "fnet": Family(refused="its Fourier transform mixes padding into all tokens"),
    "funnel": Family(refused="it pools tokens together with padding"),
    "gemma": _DECODER,
    "gemma2": replace(_DECODER, defaults={"attn_logit_softcapping": 50.0, "sliding_window": 4096}),
    "gemma3_text": replace(_WITH_WINDOWS, looks_both_ways_if_asked=True),
    "granite": _DECODER,
    "gte": _GATED,
    "ibert": Family(positions="table_behind_padding", may_recompute_layers=False),
    "jina_embeddings_v3": _ROTATED,
    "layoutlm": Family(refused="it cannot run without its pooler, which embeddings do not use"),
    "lilt": _PADDED_ROBERTA,
    "llama": _DECODER,
    "longformer": Family(positions="table_behind_padding"),
    "luke": Family(positions="table_behind_padding"),
    "markuplm": replace(_PADDED_ROBERTA, may_recompute_layers=False),
    "megatron-bert": _PADDED_BERT,
    "ministral": _WITH_WINDOWS,
    "ministral3": _DECODER,
    "mistral": _WITH_WINDOWS,
    "mobilebert": Family(refused="its last token reads the padding"),
    "modernbert": _GATED,
    "modernbert-decoder": replace(_DECODER, defaults={"sliding_window": 64}),
    "mpnet": Family(is_flat=True, positions="table_behind_padding", adds_distances=True, padding_token=1, own_code="mpnet"),
    "mra": Family(refused="its attention is zero unless its CUDA kernels are built"),
    "mt5": _MT5,
    "new": Family(refused="its code comes with the checkpoint and never runs here; the same weights exist with model_type gte"),
    "nomic_bert": _GATED,
    "nystromformer": Family(refused="its attention's landmarks are means that include padding"),
    "olmo2": _DECODER,
    "olmo3": _WITH_WINDOWS,
    "phi3": replace(_DECODER, frequencies={"yarn": "longrope"}),
    "qwen2": _WITH_WINDOWS_IF_ASKED,
    "qwen3": _WITH_WINDOWS_IF_ASKED,
    "reformer": Family(refused="its attention hashes tokens at random, together with padding"),
    "roberta": _ROBERTA,
    "roberta-prelayernorm": _ROBERTA,
    "roc_bert": _PADDED_BERT,
    "smollm3": _WITH_WINDOWS_IF_ASKED,
    "squeezebert": Family(refused="it cannot run without its pooler, which embeddings do not use"),
    "t5": _T5,
    "umt5": _MT5,
    "xlm": Family(may_recompute_layers=False),
    "xlm-roberta": _ROBERTA,
    "xlm-roberta-xl": _ROBERTA,
    "xlnet": Family(may_recompute_layers=False),
    "xmod": _PADDED_ROBERTA,
    "yoso": Family(refused="its hashed attention changes beside longer sentences"),
}


def families_where(holds: Callable[[Family], bool]) -> tuple[str, ...]:
    """Return the names of the families for which `holds` is true, in alphabetical order."""
    return tuple(name for name, one in FAMILIES.items() if holds(one))


FLAT_FAMILIES = families_where(lambda one: one.is_flat)
DECODERS = families_where(lambda one: one.is_decoder)
READ_WITHOUT_DECODER = families_where(lambda one: one.is_read_without_decoder)
# Names of the sizes in config.json files.
_WORDS: Mapping[Size, tuple[str, ...]] = {
    "num_tokens": ("vocab_size",),
    "num_positions": ("max_position_embeddings",),
    "num_layers": ("num_hidden_layers", "n_layers", "num_layers"),
    "width": ("hidden_size", "dim", "d_model"),
    "inner_width": ("intermediate_size", "hidden_dim", "d_ff"),
    "num_heads": ("num_attention_heads", "n_heads", "num_heads"),
    "num_key_heads": ("num_key_value_heads",),
    "head_width": ("head_dim", "d_kv"),
}
# Rotary frequencies that depend on the longest sentence of a batch, as transformers computes them.
_FREQUENCIES_OF_A_BATCH = ("dynamic", "longrope")


def name_of(config: Mapping[str, object]) -> str:
    """Return the family that a config.json names, "bert" by default."""
    return str(config.get("model_type", "bert"))


def family_of(config: Mapping[str, object]) -> Family:
    """Return the facts about the family that a config.json names."""
    return FAMILIES.get(name_of(config), OTHER)


def configured(config: Mapping[str, object], size: Size) -> int | None:
    """Return a size from a config.json, under any of its names, or None."""
    return next((value for word in _WORDS[size] if isinstance(value := config.get(word), int)), None)


def is_gated(config: Mapping[str, object]) -> bool:
    """Return whether the feed-forward layer has three matrices; of encoder-decoders, the config.json decides."""
    family = family_of(config)
    return family.is_gated or str({**family.defaults, **config}.get("feed_forward_proj")).startswith("gated")


def is_causal(config: Mapping[str, object]) -> bool:
    """Return whether attention is causal, for a flat family."""
    is_bidirectional = config.get("use_bidirectional_attention") or config.get("is_causal") is False
    return family_of(config).is_decoder and not is_bidirectional


def has_unread_decoder(config: Mapping[str, object]) -> bool:
    """Return whether it is an encoder-decoder whose encoder is not supported."""
    return config.get("is_encoder_decoder") is True and not family_of(config).is_read_without_decoder


def with_decoder(kind: type[SentdistError], *, where: str, found: str) -> SentdistError:
    """Return the error for a checkpoint for which `has_unread_decoder` is true."""
    return kind(
        where=where, found=f"{found}, an encoder with a decoder that writes text (BART, Pegasus, …)",
        expected="an encoder alone, such as BERT or MPNet",
        remedy="Use another checkpoint; of encoder-decoders, only T5, mT5 and UMT5 are supported.",
    )  # fmt: skip


def why_padded(config: Mapping[str, object]) -> str | None:
    """Return why a model of this configuration runs padded, or None if its sentences are concatenated without padding."""
    name, family = name_of(config), family_of(config)
    if not family.is_flat:
        return f"{name} is not among the families tested without padding"
    config = {**family.defaults, **config}
    if config.get("is_decoder") and not family.is_decoder:
        return f"is_decoder={brief(config['is_decoder'])} of {name} is supported with padding only"
    if config.get("attn_logit_softcapping") is not None:
        return f"attn_logit_softcapping={config['attn_logit_softcapping']} is supported with padding only"
    if config.get("use_bidirectional_attention") and not family.looks_both_ways_if_asked:
        return f"use_bidirectional_attention of {name} is supported with padding only"
    has_windows = config.get("sliding_window") is not None and config.get("use_sliding_window") is not False
    if family.is_decoder and config.get("is_causal") is False and has_windows:
        return f"is_causal=false with the windows of {name} is supported with padding only"
    if family.padding_token not in (None, padding := config.get("pad_token_id", family.padding_token)):
        return f"{name} numbers positions from token {family.padding_token}, which is not its padding token, pad_token_id={padding}"
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    kinds = [str(part.get("rope_type") or part.get("type")) for part in _each(rope)]
    kinds_read = [family.frequencies.get(kind, kind) for kind in kinds]
    if found := next((kind for kind in kinds_read if kind in _FREQUENCIES_OF_A_BATCH), None):
        return f"rotary frequencies of type {found!r} depend on the longest sentence of a batch"
    return None


def _each(rope: object) -> list[dict[str, object]]:
    """Rotary parameters: one set, or one for each kind of layer."""
    if not isinstance(rope, dict):
        return []
    return [rope, *(part for part in rope.values() if isinstance(part, dict))]


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """Reduces the token states of some layers, averaged over the layers, to one vector a sentence."""

    mode: str  # of sentence-transformers' Pooling
    flat: Callable[[Sequence[Tensor], Tensor], Tensor]  # (T, D) states of each layer, S + 1 boundaries of sentences -> (S, D) float32
    padded: Callable[[Sequence[Tensor], Tensor], Tensor]  # (S, T, D) states of each layer, mask (S, T) -> (S, D)


@dataclass(frozen=True, kw_only=True)
class Dense:
    """A dense layer, activation(W x + b). A new one keeps the width of the layers; a saved one is used as it is."""

    activation: Literal["Tanh", "Identity"]  # a class of torch.nn
    has_bias: bool  # of a new one


TANH = Dense(activation="Tanh", has_bias=True)  # SimCSE's


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """A pooling: the layers it reads, their reduction and its dense layer."""

    name: str
    in_folder: str | None  # content of an exported folder, for errors; None: as another pooling, which differs in training only
    reduction: Reduction
    layers: Callable[[int], Sequence[int]] | None = None  # number of transformer layers -> those it reads, from 1; None: the last
    last_in_training: bool = False  # training reads the last layer only
    head: Literal["never", "training", "always"] = "never"  # when `dense` follows
    dense: Dense = TANH

    @property
    def has_head(self) -> bool:
        """Whether it trains a dense layer."""
        return self.head != "never"

    @property
    def gives_dense(self) -> bool:
        """Whether embeddings are the output of the dense layer, not only in training."""
        return self.head == "always"

    @property
    def without_head(self) -> str:
        """The name of the pooling with the same reduction, of the last layer, and no dense layer."""
        return next(one.name for one in POOLINGS.values() if not one.has_head and (one.reduction, one.layers) == (self.reduction, None))

    @property
    def is_other_at_test(self) -> bool:
        """Whether embeddings at test time differ from those in training."""
        return self.head == "training" or self.last_in_training

    @property
    def modules(self) -> tuple[tuple[str, ...], str]:
        """Its modules in sentence-transformers at test time, after the transformer, and the mode of Pooling."""
        before = () if self.layers is None else ("WeightedLayerPooling",)
        after = ("Dense",) if self.gives_dense else ()
        return (*before, "Pooling", *after), self.reduction.mode

    def read(self, layers: Sequence[Tensor], *, training: bool) -> list[Tensor]:
        """Select the states it reads from a model's hidden_states (embeddings first), or from the last layer alone if that suffices."""
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
    """Padding may be on either side of a sentence."""
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
