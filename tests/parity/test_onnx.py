"""An exported ONNX graph gives the encoder's own embeddings, for sentences of any number and length."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from sentdist.errors import EncoderError
from sentdist.families import POOLINGS
from sentdist.inference.export import export_graph
from sentdist.learning.encoder import onnx
from sentdist.learning.encoder.encode import encode
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.recipe.specs import EncoderUse
from tests.support.tiny_encoders import SENTENCES, tiny_encoder

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra [onnx] is not installed")
pytest.importorskip("onnxscript", reason="the extra [onnx] is not installed")

# float32 sums in another order, of numbers around 1; 1 or 2 layers.
CLOSE = {"atol": 1e-5, "rtol": 1e-4}


def _embeddings(folder: Path, sentences: tuple[str, ...]) -> np.ndarray:
    """As somebody would use the folder who knows nothing of this project."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(list(sentences), padding=True, truncation=True, return_tensors="np")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    feed = {name: tokens[name].astype(np.int64) for name in ("input_ids", "attention_mask")}
    return np.asarray(session.run(["sentence_embedding"], feed)[0])


@pytest.mark.parametrize(("pooling", "is_normalized"), [*((pooling, False) for pooling in POOLINGS), ("mean", True)])
def test_what_is_exported_gives_padded_sentences_what_the_folder_gives(pooling: str, is_normalized: bool, tiny_encoder_dir: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir, pooling=pooling)
    encoder.is_exported_normalized = is_normalized
    padded = onnx.PaddedEncoder(AutoModel.from_pretrained(tiny_encoder_dir, attn_implementation="eager"), encoder).eval()
    tokens = encoder.tokenizer(list(SENTENCES), padding=True, return_tensors="pt")
    with torch.no_grad():
        found = padded(tokens["input_ids"], tokens["attention_mask"]).numpy()
    expected = encode(encoder, SENTENCES)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True) if is_normalized else 1.0
    np.testing.assert_allclose(found, expected / lengths, **CLOSE)


@dataclass(frozen=True, kw_only=True)
class Exported:
    """folder: of the encoder. difference: what the export says of itself. program: what torch made of the encoder."""

    folder: Path
    graph: Path
    difference: float
    program: torch.onnx.ONNXProgram

    @classmethod
    def make(cls, place: Path, family: str, pooling: str, *, num_layers: int) -> Exported:
        folder = tiny_encoder(place / "encoder", family, num_hidden_layers=num_layers)
        export, programs = torch.onnx.export, []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.onnx, "export", lambda *given, **named: programs.append(export(*given, **named)) or programs[-1])
            difference = export_graph(EncoderUse(checkpoint=str(folder), pooling=pooling), place / "graph")
        return cls(folder=folder, graph=place / "graph", difference=difference, program=programs[0])


@pytest.fixture(scope="module")
def bert_mean(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported.make(tmp_path_factory.mktemp("bert_mean"), "bert", "mean", num_layers=1)


# Each way through the exporter: what one layer gives, what several give, one with a head behind it; position ids of two kinds, and a model
# that makes its own. A second layer costs as much again, so it is there where it is read apart.
SEVERAL = ("first_last", "cls_last_five")


@pytest.mark.parametrize(
    ("family", "pooling"),
    [
        ("bert", "mean"),
        *(pytest.param(*case, marks=pytest.mark.nightly) for case in (("t5", "mean"), ("roberta", "first_last"), ("mpnet", "mean"))),
    ],
)
def test_the_graph_gives_the_encoder_s_embeddings(family: str, pooling: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if (family, pooling) == ("bert", "mean"):
        made = request.getfixturevalue("bert_mean")
    else:
        made = Exported.make(tmp_path, family, pooling, num_layers=2 if pooling in SEVERAL else 1)
    assert made.difference < 1e-4
    encoder = SentenceEncoder.load(made.folder, pooling=pooling)
    long = (" ".join(["a man sees the dog"] * 20), "the cat")  # truncated at the encoder's own limit
    for sentences in (SENTENCES, SENTENCES[:1], long):
        np.testing.assert_allclose(_embeddings(made.graph, sentences), encode(encoder, sentences), **CLOSE)


def test_a_graph_with_other_embeddings_is_refused(bert_mean: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph was traced before, which is what an export takes its seconds for."""
    use = EncoderUse(checkpoint=str(bert_mean.folder))
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: bert_mean.program)
    assert export_graph(use, tmp_path / "right") == bert_mean.difference
    monkeypatch.setattr(onnx, "encode", lambda encoder, sentences: encode(encoder, sentences) + 0.01)
    with pytest.raises(EncoderError, match="embeddings that differ by"):
        export_graph(use, tmp_path / "wrong")
    assert [path.name for path in tmp_path.iterdir()] == ["right"]
