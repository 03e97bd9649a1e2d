"""What is known of a family of encoders, transformers' model_type, before one of them is loaded: a row of `FAMILIES` each.

Loading, planning, forecasts and the page on encoders read this table; nothing else lists families. Without torch. What of a family has
code of its own stands in learning/encoder, and what its files may not say in refused.py there.
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
    """What is known of the encoders of one model_type. The defaults are what holds for all that the table does not name.

    positions: how places are encoded: by a table; by one whose first rows are for padding ("table_behind_padding"); by turning queries
    and keys; or by a number for each distance, which is added to scores. defaults: what a config.json means that does not say it, of the
    words that are read here. refused: why none is taken: the embedding of a sentence changes
    with the length of those that lie beside it, or cannot be had otherwise.
    """

    is_flat: bool = False  # its sentences were tested to stay apart when they lie flat; all else runs padded, in groups of similar length
    is_decoder: bool = False  # no token sees what follows it
    is_read_without_decoder: bool = False  # the encoder of an encoder-decoder
    positions: Literal["table", "table_behind_padding", "rotated", "distances"] = "table"
    adds_distances: bool = False  # a number for each distance to the scores of attention, which torch's kernels for GPUs do not take
    has_one_kind_of_positions: bool = False  # whatever `position_embedding_type` says, which could name others until transformers 5
    is_gated: bool = False  # feed-forward multiplies two linear layers, one of them activated: three matrices
    drops_within: bool = False  # between the matrices of feed-forward, too
    may_recompute_layers: bool = True  # in the backward pass, by transformers; SentenceEncoder.recompute_layers asks the class itself
    most_tokens: int | None = None  # what it was pretrained with, where files say no other length and there is no table of positions
    own_code: Literal["mpnet", "t5"] | None = None  # the module of learning/encoder through which a loaded model goes
    defaults: Mapping[str, object] = field(default_factory=dict)
    looks_both_ways_if_asked: bool = False  # a decoder that `use_bidirectional_attention` makes an encoder, without padding, too
    padding_token: int | None = None  # that numbers of positions mean, whatever `pad_token_id` says
    frequencies: Mapping[str, str] = field(default_factory=dict)  # what transformers reads for a kind of its older files
    refused: str | None = None


OTHER = Family()
_BERT = Family(is_flat=True, has_one_kind_of_positions=True)
_ROBERTA = replace(_BERT, positions="table_behind_padding")
_ROTATED = Family(is_flat=True, positions="rotated")
_GATED = replace(_ROTATED, is_gated=True)
_DECODER = replace(_GATED, is_decoder=True)
_WITH_WINDOWS = replace(_DECODER, defaults={"sliding_window": 4096})
_WITH_WINDOWS_IF_ASKED = replace(_DECODER, defaults={"use_sliding_window": False, "sliding_window": 4096})
_T5 = Family(
    is_flat=True,
    is_read_without_decoder=True,
    positions="distances",
    adds_distances=True,
    drops_within=True,
    most_tokens=512,
    own_code="t5",
)
_MT5 = replace(_T5, defaults={"feed_forward_proj": "gated-gelu"})
_PADDED_BERT = replace(_BERT, is_flat=False)
_PADDED_ROBERTA = replace(_ROBERTA, is_flat=False)


FAMILIES: Mapping[str, Family] = {
    "albert": replace(_BERT, may_recompute_layers=False),
    "bert": _BERT,
    "camembert": _ROBERTA,
    "canine": Family(refused="it reads letters and has no table of words"),
    "convbert": Family(refused="its convolutions read what pads a sentence"),
    "data2vec-text": _ROBERTA,
    "distilbert": Family(is_flat=True),
    "electra": _BERT,
    "embedding_gemma2": Family(refused="it reads images and sound, too, and its vectors have another width than its layers"),
    "embedding_gemma2_text": Family(refused="its vectors have another width than its layers"),
    "ernie": _BERT,
    "eurobert": _GATED,
    "flaubert": Family(may_recompute_layers=False),
    "fnet": Family(refused="its Fourier transform mixes what pads a sentence into all of its tokens"),
    "funnel": Family(refused="it pools tokens together with what pads them"),
    "gemma": _DECODER,
    "gemma2": replace(_DECODER, defaults={"attn_logit_softcapping": 50.0, "sliding_window": 4096}),
    "gemma3_text": replace(_WITH_WINDOWS, looks_both_ways_if_asked=True),
    "granite": _DECODER,
    "gte": _GATED,
    "ibert": Family(positions="table_behind_padding", may_recompute_layers=False),
    "jina_embeddings_v3": _ROTATED,
    "layoutlm": Family(refused="it cannot run without its pooler, which has no part in an embedding here"),
    "lilt": _PADDED_ROBERTA,
    "llama": _DECODER,
    "longformer": Family(positions="table_behind_padding"),
    "luke": Family(positions="table_behind_padding"),
    "markuplm": replace(_PADDED_ROBERTA, may_recompute_layers=False),
    "megatron-bert": _PADDED_BERT,
    "ministral": _WITH_WINDOWS,
    "ministral3": _DECODER,
    "mistral": _WITH_WINDOWS,
    "modernbert": _GATED,
    "modernbert-decoder": replace(_DECODER, defaults={"sliding_window": 64}),
    "mpnet": Family(is_flat=True, positions="table_behind_padding", adds_distances=True, padding_token=1, own_code="mpnet"),
    "mra": Family(refused="its attention is zero where CUDA kernels of its own are not built"),
    "mt5": _MT5,
    "nomic_bert": _GATED,
    "nystromformer": Family(refused="landmarks of its attention are means over what pads a sentence, too"),
    "olmo2": _DECODER,
    "olmo3": _WITH_WINDOWS,
    "phi3": replace(_DECODER, frequencies={"yarn": "longrope"}),
    "qwen2": _WITH_WINDOWS_IF_ASKED,
    "qwen3": _WITH_WINDOWS_IF_ASKED,
    "reformer": Family(refused="its attention hashes tokens by chance, and what pads them with them"),
    "roberta": _ROBERTA,
    "roberta-prelayernorm": _ROBERTA,
    "roc_bert": _PADDED_BERT,
    "smollm3": _WITH_WINDOWS_IF_ASKED,
    "squeezebert": Family(refused="it cannot run without its pooler, which has no part in an embedding here"),
    "t5": _T5,
    "umt5": replace(_MT5, is_flat=False),
    "xlm": Family(may_recompute_layers=False),
    "xlm-roberta": _ROBERTA,
    "xlm-roberta-xl": _ROBERTA,
    "xlnet": Family(may_recompute_layers=False),
    "xmod": _PADDED_ROBERTA,
    "yoso": Family(refused="its attention by hashes is another one beside longer sentences"),
}


def families_where(holds: Callable[[Family], bool]) -> tuple[str, ...]:
    """The names of those of which that holds, in the order of the alphabet."""
    return tuple(name for name, one in FAMILIES.items() if holds(one))


FLAT_FAMILIES = families_where(lambda one: one.is_flat)
DECODERS = families_where(lambda one: one.is_decoder)
READ_WITHOUT_DECODER = families_where(lambda one: one.is_read_without_decoder)
# What families call the sizes in their config.json.
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
# Frequencies of positions that change with the longest sentence of a batch, as transformers computes them.
_FREQUENCIES_OF_A_BATCH = ("dynamic", "longrope")


def name_of(config: Mapping[str, object]) -> str:
    """The family that a config.json names; without one it is a BERT."""
    return str(config.get("model_type", "bert"))


def family_of(config: Mapping[str, object]) -> Family:
    """What is known of the family that a config.json names."""
    return FAMILIES.get(name_of(config), OTHER)


def configured(config: Mapping[str, object], size: Size) -> int | None:
    """A size that a config.json says, by whichever word its family has for it; None where it says none."""
    return next((value for word in _WORDS[size] if isinstance(value := config.get(word), int)), None)


def is_gated(config: Mapping[str, object]) -> bool:
    """Whether feed-forward has three matrices. Of the encoders of encoder-decoders only some have."""
    family = family_of(config)
    return family.is_gated or str({**family.defaults, **config}.get("feed_forward_proj")).startswith("gated")


def is_causal(config: Mapping[str, object]) -> bool:
    """Whether a token of a flat family sees itself and those before it alone."""
    is_bidirectional = config.get("use_bidirectional_attention") or config.get("is_causal") is False
    return family_of(config).is_decoder and not is_bidirectional


def has_unread_decoder(config: Mapping[str, object]) -> bool:
    """Whether it is an encoder-decoder that cannot be read as an encoder."""
    return config.get("is_encoder_decoder") is True and not family_of(config).is_read_without_decoder


def with_decoder(kind: type[SentdistError], *, where: str, found: str) -> SentdistError:
    """The error for a checkpoint of which `has_unread_decoder` holds."""
    return kind(
        where=where,
        found=f"{found}, an encoder with a decoder that writes text (BART, Pegasus, …)",
        expected="an encoder alone, such as BERT or MPNet",
        remedy="Take another checkpoint; of encoder-decoders the encoder of a T5, mT5 or UMT5 is read, and no other.",
    )


def why_padded(config: Mapping[str, object]) -> str | None:
    """Why a model of this configuration runs padded; None where its sentences lie flat. What a file leaves out is the family's default."""
    name, family = name_of(config), family_of(config)
    if not family.is_flat:
        return f"{name} is not among the families whose sentences are known to stay apart without padding"
    config = {**family.defaults, **config}
    if config.get("is_decoder") and not family.is_decoder:
        return f"what is_decoder={brief(config['is_decoder'])} hides from the tokens of a {name} is known with padding alone"
    if config.get("attn_logit_softcapping") is not None:
        return f"attention without padding cannot bound its scores, as attn_logit_softcapping={config['attn_logit_softcapping']} asks"
    if config.get("use_bidirectional_attention") and not family.looks_both_ways_if_asked:
        return f"what use_bidirectional_attention does to a {name} is known with padding alone"
    has_windows = config.get("sliding_window") is not None and config.get("use_sliding_window") is not False
    if family.is_decoder and config.get("is_causal") is False and has_windows:
        return f"what is_causal=false does to the windows of a {name} is known with padding alone"
    if family.padding_token not in (None, padding := config.get("pad_token_id", family.padding_token)):
        return f"a {name} numbers positions from token {family.padding_token}, which is not its padding, pad_token_id={padding}"
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    kinds = [str(part.get("rope_type") or part.get("type")) for part in _each(rope)]
    kinds_read = [family.frequencies.get(kind, kind) for kind in kinds]
    if found := next((kind for kind in kinds_read if kind in _FREQUENCIES_OF_A_BATCH), None):
        return f"frequencies of positions of the kind {found!r} depend on the longest sentence of a batch"
    return None


def _each(rope: object) -> list[dict[str, object]]:
    """Parameters of positions: one set, or one for each kind of layers."""
    if not isinstance(rope, dict):
        return []
    return [rope, *(part for part in rope.values() if isinstance(part, dict))]


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
