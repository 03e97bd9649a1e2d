"""Which tokens are hidden and how, and what masked language modelling refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sentdist.errors import EncoderError, RecipeError
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch, TokenBatch, collate
from sentdist.learning.engine import TorchEngine
from sentdist.learning.loop import train_steps
from sentdist.learning.objective import WeightedSum
from sentdist.learning.optimization import Learner, Optimization
from sentdist.objectives.learned.mlm import MaskedLMLoss, Vocabulary, masked
from tests.support import make
from tests.support.mask_tokens import maskable_encoder
from tests.support.tiny_encoders import SENTENCES

VOCABULARY = Vocabulary(mask_id=4, special_ids=(0, 1, 2, 3, 4), num_tokens=1000)
NUM = 200_000


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> SentenceEncoder:
    return SentenceEncoder.load(maskable_encoder(tmp_path_factory.mktemp("maskable"))).train()


def test_fifteen_percent_are_hidden_eighty_ten_ten() -> None:
    torch.manual_seed(0)
    ids = torch.randint(5, 1000, (NUM,))
    seen, chosen = masked(ids, vocabulary=VOCABULARY, fraction=0.15)
    # Four standard deviations of a share of 200,000 and of 30,000 draws.
    assert chosen.float().mean().item() == pytest.approx(0.15, abs=0.0032)
    assert torch.equal(seen[~chosen], ids[~chosen])
    hidden, were = seen[chosen], ids[chosen]
    assert (hidden == 4).float().mean().item() == pytest.approx(0.8, abs=0.01)
    assert (hidden == were).float().mean().item() == pytest.approx(0.1, abs=0.01)
    replaced = hidden[(hidden != 4) & (hidden != were)]
    assert len(replaced) / len(hidden) == pytest.approx(0.1, abs=0.01)
    assert replaced.unique().numel() > 900  # of the whole vocabulary


def test_special_tokens_are_never_hidden(encoder: SentenceEncoder) -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 5, (NUM // 10,))
    seen, chosen = masked(ids, vocabulary=VOCABULARY, fraction=0.9)
    assert not chosen.any()
    assert torch.equal(seen, ids)
    assert sorted(Vocabulary.of(encoder).special_ids) == [0, 1, 2, 3], "[PAD], [UNK] (which masks, too), [CLS], [SEP]"


def test_masks_come_from_torchs_generator() -> None:
    ids = torch.randint(5, 1000, (500,))
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(masked(ids, vocabulary=VOCABULARY, fraction=0.15)[0])
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_the_decoder_is_the_encoders_matrix_and_the_encoder_no_part_of_the_objective(encoder: SentenceEncoder) -> None:
    objective = make.masked_lm(encoder)
    words = encoder.model.get_input_embeddings().weight
    assert objective.head.decoder.weight is words
    own = {id(parameter) for parameter in objective.parameters()} & {id(parameter) for parameter in encoder.parameters()}
    assert own == {id(words)}
    learner = Learner(encoder, objective)
    assert sum(parameter is words for parameter in learner.parameters()) == 1


def test_no_hidden_token_is_no_loss(encoder: SentenceEncoder) -> None:
    objective = make.masked_lm(encoder, fraction=1e-12)
    tokens = encoder.tokenize(SENTENCES[:2])
    loss = objective(torch.empty(0), Batch(tokens=tokens, num_columns=1, first_row=0, sentence_ids=np.arange(2)[None]))
    loss.backward()
    assert loss.item() == 0.0


def test_the_encoder_does_not_see_what_is_hidden(encoder: SentenceEncoder) -> None:
    """A word is guessed from `[CLS] [MASK] [SEP]`, so the loss is that of those three tokens, whatever the word."""
    shown = encoder.eval().tokenize([SENTENCES[0].split()[0]])
    assert shown.num_tokens == 3
    is_word = torch.tensor([False, True, False])
    seen_T = shown.token_ids.where(~is_word, encoder.tokenizer.mask_token_id)
    objective = make.masked_lm(encoder, hide=lambda *_, **__: (seen_T, is_word))
    batch = Batch(tokens=shown, num_columns=1, first_row=0, sentence_ids=np.arange(1)[None])
    states_TD = encoder.token_states(collate([seen_T.numpy()]))
    expected = torch.nn.functional.cross_entropy(objective.head(states_TD[1:2]), shown.token_ids[1:2])
    assert objective(torch.empty(0), batch).item() == pytest.approx(expected.item(), rel=1e-6)
    encoder.train()


def test_learning_to_guess_brings_the_loss_down(encoder: SentenceEncoder) -> None:
    torch.manual_seed(0)
    objective = make.masked_lm(encoder, fraction=0.3)
    learner = Learner(encoder, objective)
    optimizer = torch.optim.AdamW(learner.parameters(), lr=3e-3)
    batch = Batch(tokens=encoder.tokenize(SENTENCES * 4), num_columns=1, first_row=0, sentence_ids=np.arange(32)[None])
    losses = []
    for _ in range(40):
        loss = objective(torch.empty(0), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_states_of_all_tokens_pool_to_the_embeddings(encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder.eval()
    tokens = encoder.tokenize(SENTENCES)
    states = encoder.token_states(tokens)
    means = torch.stack([part.mean(dim=0) for part in states.split(list(tokens.lengths))])
    encoder.train()
    assert states.shape == (tokens.num_tokens, encoder.width)
    monkeypatch.setattr(encoder, "pooling", "first_last")
    assert torch.equal(encoder.eval().token_states(tokens), states), "the last layer's, whatever the pooling reads"
    monkeypatch.undo()
    torch.testing.assert_close(means, encoder.eval()(tokens), rtol=1e-5, atol=1e-6)
    encoder.train()


def test_a_tokenizer_without_a_mask_is_refused(tiny_encoder_dir: Path) -> None:
    with pytest.raises(EncoderError, match="without a mask token"):
        make.masked_lm(SentenceEncoder.load(tiny_encoder_dir))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_a_fraction_out_of_range_is_refused(encoder: SentenceEncoder, fraction: float) -> None:
    with pytest.raises(RecipeError, match=r"mlm\.fraction"):
        make.masked_lm(encoder, fraction=fraction)


def test_a_state_holds_the_tied_matrix_once_and_loads_again(encoder: SentenceEncoder) -> None:
    learner = Learner(encoder, make.masked_lm(encoder))
    state = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    assert "heads.head.decoder.bias" in state and "heads.head.decoder.weight" not in state
    words = encoder.model.get_input_embeddings().weight
    with torch.no_grad():
        words.add_(1.0)
    learner.load_state_dict(state)
    torch.testing.assert_close(words, state["encoder.model.embeddings.word_embeddings.weight"])
    assert isinstance(learner.heads, MaskedLMLoss) and learner.heads.head.decoder.weight is words


class SparingEngine(TorchEngine):
    """Takes no more than one sentence through the encoder."""

    def encode(self, tokens: TokenBatch) -> Tensor:
        assert len(tokens.lengths) == 1
        return super().encode(tokens)


def test_alone_it_pays_for_no_embeddings(encoder: SentenceEncoder) -> None:
    objective = make.masked_lm(encoder, fraction=0.5)
    learner = Learner(encoder, objective)
    ids = np.arange(len(SENTENCES))[None]
    batch = Batch(tokens=encoder.tokenize(SENTENCES), num_columns=1, first_row=0, sentence_ids=ids)
    before = {name: weight.clone() for name, weight in learner.named_parameters()}
    engine = SparingEngine(learner, Optimization(num_steps=2, lr=1e-3))
    losses = [report.loss for report in train_steps(engine, objective, [batch, batch])]
    assert all(loss > 0 for loss in losses)
    moved = {name for name, weight in learner.named_parameters() if not torch.equal(weight, before[name])}
    assert any(name.startswith("encoder.") for name in moved) and any(name.startswith("heads.") for name in moved)
    with pytest.raises(AssertionError):  # a term beside it does read them
        next(train_steps(engine, WeightedSum([(1.0, objective), (1.0, make.info_nce(temperature=1.0))]), [batch]))
