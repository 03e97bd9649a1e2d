"""Export an encoder as one ONNX graph: token ids and mask in, embeddings out, with pooling and, if the folder has it, Normalize."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sentdist.errors import EncoderError
from sentdist.families import POOLINGS
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.pretrained import auto_class, quiet
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder

INPUTS = ("input_ids", "attention_mask")  # (S, T) int64, padded on the right with 0 in the mask
OUTPUT = "sentence_embedding"  # (S, D) float32; the name that sentence-transformers gives it
GRAPH = "model.onnx"
TOLERANCE = 1e-4  # of an embedding's numbers, relative to the largest: other kernels sum in another order
PROBES = (
    "A man plays the guitar.",
    "dogs",
    "A young woman reads a long letter near the open window while two children sleep in the next room.",
)


def export_onnx(folder: Path, encoder: SentenceEncoder, *, checkpoint: Path) -> float:
    """Write GRAPH and the tokenizer into `folder`; return the largest difference from the encoder's embeddings, relative to their largest
    number.

    The embeddings have length 1 if the encoder `is_exported_normalized`. Sentences and tokens are dynamic axes. onnxruntime runs the graph
    before this returns. The weights are read again from `checkpoint`, the encoder's folder, into a model for padded sentences.

    Raises:
        EncoderError: the ONNX packages are not installed, this architecture cannot be exported, or the graph gives other embeddings.
    """
    runtime = _runtime(checkpoint)
    padded = PaddedEncoder(_padded_model(checkpoint, encoder), encoder).eval()
    encoder.tokenizer.model_max_length = encoder.max_length
    ids, mask = (torch.from_numpy(array) for array in _padded_tokens(encoder, PROBES[:2]))
    axes = {0: "sentences", 1: "tokens"}
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                padded, (ids, mask), dynamo=True, input_names=INPUTS, output_names=[OUTPUT],
                dynamic_shapes=dict.fromkeys(INPUTS, axes), verbose=False,
            )  # fmt: skip
            assert program is not None, "the exporter returns a program when it is given no file"
            program.save(str(folder / GRAPH))
        session = runtime.InferenceSession(str(folder / GRAPH), providers=["CPUExecutionProvider"])
    except Exception as error:  # exporter and onnxruntime have no common base class of errors
        raise EncoderError(
            where=f"encoder {checkpoint}: ONNX",
            found=f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}",
            expected=f"an architecture that torch.onnx can export ({encoder.model.config.model_type} with pooling {encoder.pooling})",
            remedy="Export it with --format sentence-transformers.",
        ) from error
    encoder.tokenizer.save_pretrained(folder)
    wanted_SD = encode(encoder, PROBES)
    if encoder.is_exported_normalized:
        wanted_SD = wanted_SD / np.linalg.norm(wanted_SD, axis=1, keepdims=True)
    found_SD = np.concatenate(
        [session.run([OUTPUT], dict(zip(INPUTS, _padded_tokens(encoder, probes), strict=True)))[0] for probes in (PROBES, PROBES[1:2])]
    )
    difference = float(np.abs(found_SD - wanted_SD[[*range(len(PROBES)), 1]]).max() / np.abs(wanted_SD).max())
    if not difference <= TOLERANCE:
        raise EncoderError(
            where=f"encoder {checkpoint}: ONNX",
            found=f"embeddings that differ by {difference:.1e}, relative to their largest number",
            expected=f"at most {TOLERANCE:.0e}",
            remedy="Export it with --format sentence-transformers.",
        )
    return difference


class PaddedEncoder(nn.Module):
    """The test-time encoder on padded sentences; only for export."""

    def __init__(self, model: PreTrainedModel, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.model = model
        self.pooling = POOLINGS[encoder.pooling]
        self.head = encoder.head if self.pooling.gives_dense else None
        self.normalize = encoder.is_exported_normalized

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the (S, D) embeddings of sentences (S, T)."""
        every = self.pooling.layers is not None
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=every, return_dict=True)
        layers = output.hidden_states if every else (output.last_hidden_state,)
        pooled_SD = self.pooling.reduction.padded(self.pooling.read(layers, training=False), attention_mask)
        embeddings_SD = pooled_SD if self.head is None else self.head(pooled_SD)
        return nn.functional.normalize(embeddings_SD) if self.normalize else embeddings_SD


def _padded_model(checkpoint: Path, encoder: SentenceEncoder) -> PreTrainedModel:
    """Load the weights with eager attention: fused kernels do not export the same way everywhere."""
    with quiet(reports=False):
        kind = auto_class(encoder.model.config)
        model: PreTrainedModel = kind.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager", trust_remote_code=False)
    if "pooler" in model._modules:
        model._modules["pooler"] = None  # its output is not used
    return model


def _padded_tokens(encoder: SentenceEncoder, sentences: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    tokens = encoder.tokenizer(
        list(sentences), truncation=True, max_length=encoder.max_length, padding=True, return_tensors="np", return_token_type_ids=False
    )
    ids, mask = (np.asarray(tokens[name], dtype=np.int64) for name in INPUTS)
    return ids, mask


def _runtime(checkpoint: Path):  # type: ignore[no-untyped-def]  # an untyped module
    try:
        import onnx  # noqa: F401 - torch's exporter needs both, and fails late without
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise EncoderError(
            where=f"encoder {checkpoint}: ONNX",
            found=f"no package {error.name}",
            expected="onnx, onnxscript and onnxruntime",
            remedy="pip install 'sentdist[onnx]'",
        ) from error
    return onnxruntime


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's warnings about its own deprecations, torchvision and names of axes."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
