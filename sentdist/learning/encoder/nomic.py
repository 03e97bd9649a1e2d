"""What Nomic's configurations say in words of their own, which transformers' class for them does not read.

A checkpoint of theirs (nomic-ai/nomic-embed-text-v1, v1.5) was released with code of its own and a config.json in that code's words.
Since 5.x transformers has the architecture itself: it renames the weights, runs no code of the checkpoint, and takes whatever its own
words do not say from its defaults, which are these two checkpoints'. Another one of that family would quietly be computed as one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.errors import EncoderError

if TYPE_CHECKING:  # planning reads the tables below without it
    from transformers import PreTrainedConfig

MODEL_TYPE = "nomic_bert"
# Nomic's word -> transformers'. Positions are not here: without scaling the table of 2,048 is what both can compute.
SAME_AS = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "embd_pdrop": "hidden_dropout_prob",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
}
# Nomic's word -> what transformers' class computes whatever is written there.
FIXED: dict[str, object] = {
    "activation_function": "swiglu",
    "prenorm": False,
    "parallel_block": False,
    "causal": False,
    "use_rms_norm": False,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
}


def other_word(config: Mapping[str, object]) -> str | None:
    """The first word of a config.json that says something else than what is computed in any case; None where there is none."""
    return next((name for name, value in FIXED.items() if config.get(name, value) != value), None)


def check_released_words(config: PreTrainedConfig, folder: Path) -> None:
    """EncoderError where sizes in Nomic's words are others than those that will be computed; asked before any of it is changed."""
    if config.model_type != MODEL_TYPE:
        return
    computed = {name: getattr(config, other) for name, other in SAME_AS.items()}
    computed["rotary_emb_base"] = config.rope_parameters["rope_theta"]
    for name, value in computed.items():
        found = getattr(config, name, value)
        if found != value:
            raise EncoderError(
                where=f"encoder {folder}/config.json: {name}",
                found=f"{found!r}, which transformers reads under another name and computes as {value!r}",
                expected="the architecture of nomic-embed-text-v1",
                remedy="Take that one or v1.5; where sizes differ, write them under transformers' names: "
                + ", ".join(dict.fromkeys(SAME_AS.values()))
                + ".",
            )
