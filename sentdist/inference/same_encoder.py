"""An encoder as other processes load it: the very one that a process has, or none. Without torch, as who only hands it on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sentdist.errors import EncoderError
from sentdist.learning.encoder.packaged import PACKAGED_ENCODERS
from sentdist.plan.specs import EncoderUse

if TYPE_CHECKING:
    from sentdist.inference.ready_encoder import LoadedEncoder


@dataclass(frozen=True, kw_only=True)
class SameEncoder:
    """use: as it is found from any folder; one of the hub at the commit that was loaded. digest: of its files; None of the hub, where
    the commit says it."""

    use: EncoderUse
    digest: str | None

    @classmethod
    def of(cls, loaded: LoadedEncoder) -> SameEncoder:
        """For processes in other folders and on other hosts: those of a cluster work where that was started, and what a hub id names may be
        another commit there."""
        use, folder = loaded.use, loaded.folder
        if use.checkpoint in PACKAGED_ENCODERS:
            return cls(use=use, digest=loaded.digest.whole)
        if Path(use.checkpoint).expanduser() == folder:
            return cls(use=replace(use, checkpoint=str(folder.absolute())), digest=loaded.digest.whole)
        return cls(use=replace(use, revision=folder.name), digest=None)  # huggingface_hub: snapshots/COMMIT

    def load(self, device: str | None = None) -> LoadedEncoder:
        """The encoder, as `LoadedEncoder.load`.

        Raises:
            EncoderError: as there; another encoder under that name, which another host has, or which was put there meanwhile.
        """
        from sentdist.inference.ready_encoder import LoadedEncoder

        loaded = LoadedEncoder.load(self.use, device)
        if self.digest is not None and loaded.digest.whole != self.digest:
            packaged = PACKAGED_ENCODERS.get(self.use.checkpoint)
            remedy = (
                "Put the same folder on all hosts, or on a disk that they share"
                if packaged is None
                else f"Install the same version of {packaged.distribution} on all hosts"
            )
            raise EncoderError(
                where=f"encoder {self.use.checkpoint}",
                found="another configuration, tokenizer or pooling, or other weights under that name on a worker's host than here",
                expected="one encoder on all hosts, which stays as it is",
                remedy=f"{remedy}, and begin again.",
            )
        return loaded
