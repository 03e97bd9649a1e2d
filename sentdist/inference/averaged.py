"""The average of the weights of encoders that were trained from one start with different seeds."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from sentdist.inference.outputs import whole_folder
from sentdist.store.record import OWN_FILES


def average_encoders(folders: Sequence[Path], to: Path) -> None:
    """Write the encoder whose weights are the mean of those in these folders (Wortsman et al. 2022, arXiv 2203.05482, "uniform soup").

    The rest of the folder is the first one's.

    Raises:
        DataError: `to` is there already.
    """
    import torch
    from safetensors.torch import load_file, save_file

    with whole_folder(to) as part:
        shutil.copytree(folders[0], part, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*OWN_FILES))
        for file in sorted(part.rglob("*.safetensors")) if folders[1:] else ():
            each = [load_file(folder / file.relative_to(part)) for folder in folders]
            mean = {
                name: torch.stack([one[name].double() for one in each]).mean(dim=0).to(first.dtype) if first.is_floating_point() else first
                for name, first in each[0].items()
            }
            save_file(mean, file, metadata={"format": "pt"})
