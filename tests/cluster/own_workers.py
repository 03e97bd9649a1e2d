"""Run as a program: a file is encoded in one process, and by workers on the two GPUs that a machine is said to have, which compute on CPUs.
Prints a line of JSON: how far embeddings are apart, and what was said."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.execution.cluster import address as own_cluster
from sentdist.execution.parallel import sharing

NUM_SENTENCES = 1_100  # more than a part has


def without_gpus(start: object, **asked: int) -> object:
    return start(**asked | {"gpus": 0})  # type: ignore[operator]


def main(folder: Path, encoder: str) -> None:
    words = ["a", "man", "woman", "the", "dog", "runs", "sings", "in", "house", "near", "street", "today"]
    file, said = folder / "lines.txt", []
    file.write_text("\n".join(" ".join(words[number % 5 :][: 1 + number % 8]) for number in range(NUM_SENTENCES)))
    for many in (NUM_SENTENCES + 1, NUM_SENTENCES):
        with (
            patch.object(sharing, "MANY_SENTENCES", many),
            patch.object(sharing, "usable_gpus", lambda: 2),
            patch.object(sharing, "local_nodes", list),  # other tests may run a cluster on this machine
            patch.object(own_cluster, "own_cluster", partial(without_gpus, own_cluster.own_cluster)),
        ):
            done = CliRunner().invoke(app, ["encode", encoder, str(file), "--out", str(folder / f"{many}.npy")], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert "RAY_AUTH_TOKEN" not in os.environ
        said.append(done.output.splitlines()[0])
    here, there = (np.load(path) for path in sorted(folder.glob("*.npy")))
    print(json.dumps({"rows": len(here), "apart": float(np.abs(here - there).max()), "said": said}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
