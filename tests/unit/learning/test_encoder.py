"""Loading, reading, saving and embedding with an encoder, and what it says about bad input."""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import pickle
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer

from sentdist.errors import DataError, EncoderError, ResourceError
from sentdist.families import FLAT_FAMILIES, POOLINGS, READ_WITHOUT_DECODER
from sentdist.learning.encoder import encode as encode_module
from sentdist.learning.encoder.encode import encode, length_sorted
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import TokenBatch, collate
from sentdist.learning.encoder.write_folder import EncoderCard
from tests.support.pooled import pooled, with_dense_layer
from tests.support.tiny_encoders import MAX_POSITIONS, SENTENCES, tiny_encoder, word_tokenizer

CARD = EncoderCard(
    base_model="acme/tiny-bert", base_revision="0123abc", is_on_hub=True,
    data=("nli/triplets (10 rows)",),
    objective="InfoNCE",
    hyperparameters={"learning rate": 2e-5, "epochs": 1, "channels": None},
    scores={"STS-B test (Spearman × 100)": 81.25},
)  # fmt: skip


# float32 sums in another order, through up to seven layers: on a Xeon with AVX-512 one number in 256 was 2.7e-6 of itself away
ROUNDED = {"rtol": 1e-5, "atol": 1e-6}


def test_unit_batch_round_trip() -> None:
    tokens = collate([[5, 6, 7], [8], [9, 10]])
    assert tokens.lengths == (3, 1, 2)
    assert tokens.boundaries.tolist() == [0, 3, 4, 6]
    part = tokens.take(range(1, 3))
    assert part.token_ids.tolist() == [8, 9, 10]
    assert part.boundaries.tolist() == [0, 1, 3]
    assert (tokens.num_sentences, tokens.num_tokens, tokens.longest) == (3, 6, 3)


@pytest.mark.parametrize("sentences", [[], [[1], []]])
def test_collate_refuses_nothing(sentences: list[list[int]]) -> None:
    with pytest.raises(DataError, match=r"no (sentences|token)"):
        collate(sentences)


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("family", "pooling"),
    [
        *((family, pooling) for family in ("bert", "roberta") for pooling in sorted(POOLINGS)),
        *((family, "mean") for family in sorted({*FLAT_FAMILIES} - {"bert", "roberta"})),
        *((family, "last_token") for family in ("qwen3", "mistral", "gemma3_text", "phi3")),
        ("modernbert", "cls"), ("gte", "cls"), ("roberta-prelayernorm", "first_last"), ("eurobert", "cls_mlp"),
    ],
)  # fmt: skip
def test_saved_folder_gives_the_same_embeddings_everywhere(family: str, pooling: str, tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path / "base", family, num_hidden_layers=7 if pooling == "cls_last_five" else 2)
    encoder = SentenceEncoder.load(folder, pooling=pooling, max_length=20)
    expected = encode(encoder, SENTENCES)
    encoder.save(tmp_path / "saved", card=CARD)
    peer = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert peer.max_seq_length == AutoTokenizer.from_pretrained(tmp_path / "saved").model_max_length == 20
    np.testing.assert_allclose(peer.encode(list(SENTENCES)), expected, **ROUNDED)
    again = SentenceEncoder.load(tmp_path / "saved")
    assert (again.pooling, again.max_length) == ("cls" if pooling == "cls_mlp_train_only" else pooling, 20)
    np.testing.assert_allclose(encode(again, SENTENCES), expected, **ROUNDED)
    np.testing.assert_allclose(_by_hand(tmp_path / "saved", pooling), expected, **ROUNDED)


def _by_hand(folder: Path, pooling: str) -> np.ndarray:
    """The folder's embeddings through transformers alone."""
    inputs = AutoTokenizer.from_pretrained(folder)(list(SENTENCES), padding=True, truncation=True, return_tensors="pt")
    kind = AutoModelForTextEncoding if AutoConfig.from_pretrained(folder).model_type in READ_WITHOUT_DECODER else AutoModel
    with torch.no_grad():
        states = kind.from_pretrained(folder).eval()(**inputs, output_hidden_states=True).hidden_states
    embeddings = pooled(states, inputs["attention_mask"], pooling)
    dense = SentenceTransformer(str(folder), device="cpu")[2].linear.state_dict() if (folder / "2_Dense").exists() else {}
    return with_dense_layer(embeddings, {f"dense.{name}": weight for name, weight in dense.items()}, pooling).numpy()


def test_saving_keeps_the_original_weights_and_says_how_it_was_made(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir)
    encoder.save(tmp_path / "saved", card=CARD)
    before, after = (AutoModel.from_pretrained(folder).state_dict() for folder in (tiny_encoder_dir, tmp_path / "saved"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any("pooler" in name for name, _ in encoder.named_parameters())
    readme = (tmp_path / "saved" / "README.md").read_text()
    for fact in (
        "acme/tiny-bert",
        "nli/triplets (10 rows)",
        "InfoNCE",
        "| learning rate | 2e-05 |",
        "81.25",
        "pipeline_tag: sentence-similarity",
        "base_model: acme/tiny-bert",
        "finetuned from [acme/tiny-bert](https://huggingface.co/acme/tiny-bert)",
        "acme/tiny-bert at 0123abc",
    ):
        assert fact in readme
    assert "language:" not in readme and "| channels |" not in readme


def test_minilm_equals_sentence_transformers(minilm: Path) -> None:
    encoder = SentenceEncoder.load("minilm-l6")
    assert (encoder.pooling, encoder.max_length, encoder.width) == ("mean", 256, 384)
    ours = encode(encoder, SENTENCES)
    theirs = SentenceTransformer(str(minilm), device="cpu").encode(list(SENTENCES))
    np.testing.assert_allclose(ours / np.linalg.norm(ours, axis=1, keepdims=True), theirs, atol=1e-6)


def test_encode_keeps_the_order_whatever_the_batches(tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir).train()
    expected = encode(encoder, SENTENCES)
    for budget in (1, 13, 50):
        np.testing.assert_allclose(encode(encoder, SENTENCES, tokens_per_batch=budget), expected, atol=2e-6)
    assert encoder.training, "encode leaves the mode as it was"
    assert encode(encoder, []).shape == (0, 32)
    with pytest.raises(ResourceError, match="tokens_per_batch"):
        encode(encoder, SENTENCES, tokens_per_batch=0)
    encode(encoder.eval(), SENTENCES)
    assert not encoder.training
    monkeypatch.setattr(encode_module, "_SENTENCES_AT_ONCE", 3)
    np.testing.assert_allclose(encode(encoder, SENTENCES), expected, atol=2e-6)


def test_batches_stay_under_their_budget_and_cover_all() -> None:
    tokens = collate([[1] * length for length in (9, 2, 2, 30, 5, 5, 1)])
    batches = list(length_sorted(tokens, tokens_per_batch=12))
    assert sorted(np.concatenate([rows for rows, _ in batches]).tolist()) == list(range(7))
    assert all(part.num_tokens <= 12 or part.num_sentences == 1 for _, part in batches)


def test_embeddings_are_read_when_the_next_forward_is_launched(tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU would stand still while the host reads what it has just computed."""
    encoder, order = SentenceEncoder.load(tiny_encoder_dir), []
    expected = encode(encoder, SENTENCES, tokens_per_batch=16)

    def to_host(embeddings: Tensor) -> Callable[[], np.ndarray]:
        number = order.count("launched")
        order.append("launched")

        def arrived() -> np.ndarray:
            order.append(f"read {number}")
            return embeddings.numpy()

        return arrived

    monkeypatch.setattr(encode_module, "_to_host", to_host)
    assert np.array_equal(encode(encoder, SENTENCES, tokens_per_batch=16), expected)
    num = order.count("launched")
    assert num > 2
    assert order == ["launched", *(step for place in range(num - 1) for step in ("launched", f"read {place}")), f"read {num - 1}"]


def test_on_a_gpu_batches_are_made_in_a_thread_and_larger(tiny_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir)
    expected, threads, budgets = encode(encoder, SENTENCES), set(), []

    def pinned(tokens: TokenBatch, device: torch.device) -> TokenBatch:
        threads.add(threading.current_thread().name)
        return tokens

    def cut(tokens: TokenBatch, *, tokens_per_batch: int) -> Iterator[tuple[np.ndarray, TokenBatch]]:
        budgets.append(tokens_per_batch)
        return length_sorted(tokens, tokens_per_batch=16)

    monkeypatch.setattr(SentenceEncoder, "device", torch.device("cuda", 1))
    monkeypatch.setattr(TokenBatch, "to", lambda tokens, device: tokens)
    monkeypatch.setattr(encode_module, "_pinned", pinned)
    monkeypatch.setattr(encode_module, "length_sorted", cut)
    monkeypatch.setattr(encode_module, "packed_linears", lambda model, precision: nullcontext())
    np.testing.assert_allclose(encode(encoder, SENTENCES), expected, atol=2e-6)
    assert threads == {"batches"} and budgets == [32_768]
    monkeypatch.setattr(encoder, "tokenize", _fails)
    with pytest.raises(RuntimeError, match="no tokens"):
        encode(encoder, SENTENCES)
    assert "batches" not in {thread.name for thread in threading.enumerate()}


def _fails(*_: object, **__: object) -> TokenBatch:
    raise RuntimeError("no tokens")


def test_encode_tells_how_far_it_is(tiny_encoder_dir: Path) -> None:
    reported: list[int] = []
    encode(SentenceEncoder.load(tiny_encoder_dir), SENTENCES, tokens_per_batch=16, on_progress=reported.append)
    assert len(reported) > 1 and reported == sorted(set(reported)) and reported[-1] == len(SENTENCES)


def test_planted_encoder_knows_the_right_answers(planted_encoder_dir: Path) -> None:
    encoder = SentenceEncoder.load(planted_encoder_dir)
    same, shuffled, overlapping, disjoint = encode(
        encoder, ["the dog runs quickly", "quickly runs the dog", "the dog sleeps slowly", "two birds plays guitar"]
    )

    def cosine(left: np.ndarray, right: np.ndarray) -> float:
        return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))

    assert cosine(same, shuffled) == pytest.approx(1.0, abs=1e-6)
    assert cosine(same, overlapping) > cosine(same, disjoint) + 0.2


def test_long_sentences_are_truncated_and_counted(tiny_encoder_dir: Path) -> None:
    encoder = SentenceEncoder.load(tiny_encoder_dir)
    tokens = encoder.tokenize(["dog", "the dog " * 50, "a cat"], max_length=8)
    assert tokens.lengths == (3, 8, 4)
    assert tokens.num_truncated == 1
    assert encoder.tokenize(["the dog " * 50]).lengths == (MAX_POSITIONS,)
    np.testing.assert_allclose(encode(encoder, ["the dog " * 50], max_length=5), encode(encoder, ["the dog the"]), atol=2e-6)


@pytest.mark.parametrize("family", ["bert", "distilbert"])  # which call it by different names
def test_dropouts_act_in_training_as_set(family: str, tmp_path: Path) -> None:
    tiny_encoder(tmp_path, family)
    for hidden, attention in ((0.0, 0.0), (0.3, 0.0), (0.0, 0.3)):
        encoder = SentenceEncoder.load(tmp_path, hidden_dropout=hidden, attention_dropout=attention).train()
        once, again = (encoder(encoder.tokenize(SENTENCES)).detach() for _ in range(2))
        assert torch.equal(once, again) is (hidden == attention == 0.0)


@pytest.mark.parametrize("empty", ["", "  \t"])
def test_empty_sentence_is_refused(empty: str, tiny_encoder_dir: Path) -> None:
    with pytest.raises(DataError, match=r"^sentence 2: found .*\. Fill it in, or leave it out\.$"):
        SentenceEncoder.load(tiny_encoder_dir).tokenize(["a dog", empty])


def test_missing_folder_names_its_neighbour(tiny_encoder_dir: Path) -> None:
    wrong = tiny_encoder_dir.parent / (tiny_encoder_dir.name + "x")
    with pytest.raises(EncoderError, match="Did you mean") as caught:
        SentenceEncoder.load(wrong)
    assert str(tiny_encoder_dir) in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_name_that_is_neither_here_nor_on_the_hub_names_its_neighbour(
    tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word without a slash may be a folder or a model of the hub."""
    (tmp_path / "my-encoder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EncoderError, match=r'no such folder here, and .*expected a folder, or a hub model\. Did you mean "my-encoder"\?'):
        SentenceEncoder.load("my-encodr")


def test_misspelt_packaged_name_is_met() -> None:
    with pytest.raises(EncoderError, match='Did you mean "minilm-l6"'):
        SentenceEncoder.load("minilm-l7")


def test_folder_has_no_revision(tiny_encoder_dir: Path) -> None:
    with pytest.raises(EncoderError, match="revision"):
        SentenceEncoder.load(tiny_encoder_dir, revision="abc")


def test_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="no readable"):
        SentenceEncoder.load(tmp_path)


def test_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path, "bert")
    word_tokenizer(words=tuple(f"word{number}" for number in range(500))).save_pretrained(folder)
    with pytest.raises(EncoderError, match="504 tokens and 53 word embeddings"):
        SentenceEncoder.load(folder)


def test_weights_of_another_model_are_refused(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_encoder_dir, tmp_path / "deeper")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(EncoderError, match=r"no weights for encoder\.layer\.2"):
        SentenceEncoder.load(folder)


@pytest.mark.parametrize(
    ("pooling", "module", "change", "reported"),
    [
        ("cls_mlp", "2_Dense", {"activation_function": "torch.nn.modules.linear.Identity"}, "dense layer of 32 to 32 with .*Identity"),
        ("cls_mlp", "2_Dense", {"use_residual": True}, "dense layer of 32 to 32 with .*Tanh, around which its input goes"),
        ("mean_dense", "2_Dense", {"activation_function": "torch.nn.modules.activation.Tanh"}, "dense layer of 32 to 32 with .*Tanh"),
        ("cls_mlp", "2_Dense", {"out_features": 16}, "found weights .*; expected linear.weight to the width 16 that its config.json says"),
        ("cls_mlp", "2_Dense", {"out_features": None}, "one whose config.json has no out_features.*Name the pooling cls to leave it out"),
        ("first_last", "1_WeightedLayerPooling", {"layer_start": 2}, "mean of layers from 2 on"),
    ],
)
def test_modules_that_compute_otherwise_than_ours_are_refused(
    pooling: str, module: str, change: dict[str, object], reported: str, tiny_encoder_dir: Path, tmp_path: Path
) -> None:
    """Else another encoder's embeddings would come out, in silence."""
    SentenceEncoder.load(tiny_encoder_dir, pooling=pooling).save(tmp_path / "saved", card=CARD)
    assert SentenceEncoder.load(tmp_path / "saved").pooling == pooling
    config = tmp_path / "saved" / module / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(EncoderError, match=reported):
        SentenceEncoder.load(tmp_path / "saved")


@pytest.mark.parametrize("pooling", ["first_last", "cls_last_five"])
def test_trained_weights_of_layers_are_refused(pooling: str, tiny_encoder_dir: Path, tmp_path: Path) -> None:
    SentenceEncoder.load(tiny_encoder_dir, pooling=pooling).save(tmp_path / "saved", card=CARD)
    assert SentenceEncoder.load(tmp_path / "saved").pooling == pooling
    save_file({"layer_weights": torch.tensor([1.0, 3.0])}, tmp_path / "saved" / "1_WeightedLayerPooling" / "model.safetensors")
    with pytest.raises(EncoderError, match=rf"weights 0\.25, 0\.75 of the layers; expected what {pooling} computes: 0\.5, 0\.5"):
        SentenceEncoder.load(tmp_path / "saved")
    assert SentenceEncoder.load(tmp_path / "saved", pooling="mean").pooling == "mean"


def test_pooling_that_we_cannot_compute_is_refused_unless_one_is_named(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    SentenceEncoder.load(tiny_encoder_dir).save(tmp_path / "saved", card=CARD)
    pooling = tmp_path / "saved" / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"pooling_mode": ["cls", "mean"]}))
    with pytest.raises(EncoderError, match="'cls,mean'; expected mean, cls, cls with one dense"):
        SentenceEncoder.load(tmp_path / "saved")
    assert SentenceEncoder.load(tmp_path / "saved", pooling="cls").pooling == "cls"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": "average"}, "one of mean, cls"),
        ({"max_length": MAX_POSITIONS + 1}, "max_length"),
        ({"max_length": 2}, "max_length"),
        ({"attention_dropout": 1.0}, "attention_dropout"),
        ({"hidden_dropout": -0.1}, "hidden_dropout"),
        ({"drophead": 1.0}, "drophead"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, object], message: str, tiny_encoder_dir: Path) -> None:
    with pytest.raises(EncoderError, match=message):
        SentenceEncoder.load(tiny_encoder_dir, **settings)  # type: ignore[arg-type]


def test_drophead_needs_a_model_that_runs_flat(tiny_padded_dir: Path) -> None:
    with pytest.raises(EncoderError, match="deberta-v2 is not among"):
        SentenceEncoder.load(tiny_padded_dir, drophead=0.1)


def test_tokenizing_beyond_the_positions_is_refused(tiny_encoder_dir: Path) -> None:
    with pytest.raises(EncoderError, match="max_length"):
        SentenceEncoder.load(tiny_encoder_dir).tokenize(["a dog"], max_length=400)


def test_a_random_encoder_takes_only_the_architecture(tiny_encoder_dir: Path) -> None:
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(SentenceEncoder.load(tiny_encoder_dir, initialization="random"))
    pretrained = SentenceEncoder.load(tiny_encoder_dir)
    names = [name for name, weight in pretrained.named_parameters() if weight.dim() > 1]
    weights = [dict(encoder.named_parameters()) for encoder in (*drawn, pretrained)]
    assert [dict(encoder.named_parameters()).keys() for encoder in drawn[:1]] == [dict(pretrained.named_parameters()).keys()]
    for name in names:
        assert torch.equal(weights[0][name], weights[1][name])
        assert not torch.equal(weights[0][name], weights[2][name])
        assert not torch.equal(weights[0][name], weights[3][name])


class RefusedImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A library that is installed, as transformers looks for it, and must not be imported."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.num_imports = 0

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def exec_module(self, module: object) -> None:
        self.num_imports += 1
        raise ImportError(self.name)


def test_an_encoder_is_saved_without_deepspeed(tiny_encoder_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers would import it, for seconds, to learn whether it wraps the model."""
    encoder = SentenceEncoder.load(tiny_encoder_dir)
    refused = RefusedImport("deepspeed")
    monkeypatch.delitem(sys.modules, refused.name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [refused, *sys.meta_path])
    encoder.save(tmp_path / "saved", card=EncoderCard(base_model="tiny", objective="info_nce"))
    assert refused.num_imports == 0
