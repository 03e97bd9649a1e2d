"""Run as a program where Triton interprets its kernels (TRITON_INTERPRET=1): a GPU's layers beside torch. A line of JSON a case.

Without an argument what takes seconds; with "mpnet" its layers, with "dropped" the gradients under dropout, each as long as all else.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from sentdist.kernels import cpp_kernels, tensors, triton_kernels
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from tests.support.gpu_layers import by_gpu_kernels, gelu_beside_torch, norm_beside_torch
from tests.support.layers import SHORT, distance, loss_and_gradients, off, slope_beside_gradient
from tests.support.tiny_encoders import SENTENCES, tiny_encoder, with_vectors

CPU = torch.device("cpu")
SOME = SENTENCES[1:5]  # of 1 to 22 words, for tiles of 16 and 32 tokens; each token more is interpreted, too
HEADS = {"num_attention_heads": 2, "hidden_size": 32, "intermediate_size": 48}


def whole_layers(folder: Path, family: str) -> dict[str, Any]:
    encoder = SentenceEncoder.load(tiny_encoder(folder, family, layer_norm_eps=0.1, **HEADS), hidden_dropout=0.0, attention_dropout=0.0)
    with_vectors(encoder)
    frozen = copy.deepcopy(encoder)
    frozen.model.encoder.layer[0].requires_grad_(False)
    with patch.object(cpp_kernels, "why_unavailable", lambda: "not now"):
        expected_loss, expected = loss_and_gradients(copy.deepcopy(encoder).double(), sentences=SOME)
        with torch.no_grad():
            embeddings = copy.deepcopy(encoder).eval().double()(encoder.tokenize(SOME))
    with by_gpu_kernels() as counted:
        loss, gradients = loss_and_gradients(encoder, sentences=SOME)
        _, of_frozen = loss_and_gradients(frozen, sentences=SOME)
        with torch.no_grad():
            found = encoder.eval()(encoder.tokenize(SOME))
        again = copy.deepcopy(encoder).train()
        again.recompute_layers()
        _, recomputed = loss_and_gradients(again, sentences=SOME)
    return {
        "what": f"layers of {family}", "counted": len(counted), "loss": off(loss, expected_loss), "gradients": distance(gradients, expected),
        "encoded": off(found, embeddings), "frozen": sorted({name.split(".")[3] for name in of_frozen if ".layer." in name}),
        "recomputed": distance(recomputed, gradients),
    }  # fmt: skip


def dropped(folder: Path) -> dict[str, Any]:
    """Gradients behind each mask and with whole heads dropped; a layer that is computed again draws the same."""
    encoder = SentenceEncoder.load(
        tiny_encoder(folder, "bert", layer_norm_eps=0.1, **HEADS), hidden_dropout=0.3, attention_dropout=0.3, drophead=0.3
    )
    with_vectors(encoder)
    with by_gpu_kernels():
        slopes = [slope_beside_gradient(encoder, name) for name in ("attention.self.value", "attention.output.dense", "output.dense")]
        torch.manual_seed(3)
        _, kept = loss_and_gradients(encoder, sentences=SHORT)
        encoder.recompute_layers()
        torch.manual_seed(3)
        _, again = loss_and_gradients(encoder, sentences=SHORT)
    return {"what": "dropped", "slopes": slopes, "recomputed": distance(again, kept)}


def drawn() -> dict[str, Any]:
    """Seeds of masks, and what the generator gives next where none is asked for."""
    torch.manual_seed(1)
    first, none, last = triton_kernels.draw_dropout_masks([0.1, 0.0, 0.2], CPU)
    assert first is not None and none is None and last is not None
    torch.manual_seed(1)
    again, *_ = triton_kernels.draw_dropout_masks([0.1, 0.1, 0.1], CPU)
    torch.manual_seed(1)
    quiet, next_one = triton_kernels.draw_dropout_masks([0.0, 0.0], CPU), torch.rand(())
    torch.manual_seed(1)
    assert again is not None
    return {
        "what": "masks", "p": [first.p, last.p], "seeds": [int(first.seed), int(last.seed), int(again.seed)], "quiet": list(quiet),
        "undrawn": torch.equal(next_one, torch.rand(())),
    }  # fmt: skip


def cheap_cases(folder: Path) -> Iterator[dict[str, Any]]:
    yield drawn()
    for dtype in (torch.float32, torch.float16):
        for width in (48, 384):
            for whole in (False, True):
                yield norm_beside_torch(CPU, dtype, width, whole=whole)
            yield gelu_beside_torch(CPU, dtype, width)
    yield whole_layers(folder, "bert")


def main(which: str = "") -> None:
    several_rows, all_tiles = patch.object(triton_kernels, "SUM_PROGRAMS", 4), patch.object(tensors, "FEWEST_PROGRAMS", 1)
    with several_rows, all_tiles, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases: dict[str, Callable[[Path], Iterable[dict[str, Any]]]] = {
            "": cheap_cases,
            "mpnet": lambda folder: [whole_layers(folder, "mpnet")],
            "dropped": lambda folder: [dropped(folder)],
        }
        for case in cases[which](folder):
            print(json.dumps(case), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
