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
    """use: as it is found from any folder; one of the hub at the commit that was loaded. digest: of its configuration and weights; None of
    the hub, where the commit says it."""

    use: EncoderUse
    digest: str | None

    @classmethod
    def of(cls, loaded: LoadedEncoder) -> SameEncoder:
        """For processes in other folders and on other hosts: those of a cluster work where that was started, and what a hub id names may be
        another commit there."""
        use, folder = loaded.use, loaded.folder
        if use.checkpoint in PACKAGED_ENCODERS:
            return cls(use=use, digest=loaded.digest)
        if Path(use.checkpoint).expanduser() == folder:
            return cls(use=replace(use, checkpoint=str(folder.absolute())), digest=loaded.digest)
        return cls(use=replace(use, revision=folder.name), digest=None)  # huggingface_hub: snapshots/COMMIT

    def load(self, device: str | None = None) -> LoadedEncoder:
        """The encoder, as `LoadedEncoder.load`.

        Raises:
            EncoderError: as there; another encoder under that name, which another host has, or which was put there meanwhile.
        """
        from sentdist.inference.ready_encoder import LoadedEncoder

        loaded = LoadedEncoder.load(self.use, device)
        if self.digest is not None and loaded.digest != self.digest:
            raise EncoderError(
                where=f"encoder {self.use.checkpoint}",
                found="another configuration or other weights in a worker's folder of that name than here",
                expected="one encoder on all hosts, which stays as it is",
                remedy="Put the same folder on all hosts, or on a disk that they share, and begin again.",
            )
        return loaded
