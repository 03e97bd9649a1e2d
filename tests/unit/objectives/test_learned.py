"""Masked language modelling and regression at their seams: which tokens are hidden, what heads read, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sentdist.errors import EncoderError
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch, collate
from sentdist.learning.optimization import Learner
from sentdist.objectives.learned.mlm import MaskedLMLoss, Vocabulary, masked
from sentdist.objectives.regression import Regression, cross_entropy, prediction_errors
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


def test_a_tokenizer_without_a_mask_is_refused(tiny_encoder_dir: Path) -> None:
    with pytest.raises(EncoderError, match="mask token"):
        make.masked_lm(SentenceEncoder.load(tiny_encoder_dir))


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


def test_the_shape_trap() -> None:
    """(B, 1) − (B,) would be (B, B) without a word."""
    for predictions, labels in (((4, 1), (4,)), ((4,), (4, 1)), ((4,), (3,))):
        with pytest.raises(ValueError, match="labels"):
            prediction_errors(torch.zeros(predictions), torch.zeros(labels), boundary="none", low=0, high=2)


def test_a_grid_has_a_class_for_both_ends_and_each_step_between() -> None:
    """0.3 / 0.1 is 2.9999999999999996 in float64; in float32 a label of 0.1 steps is a little below or above its place."""
    for steps in range(1, 51):
        objective = Regression(loss="cross_entropy", boundary="none", label_range=(0.0, steps / 10), spacing=0.1)
        assert objective.num_classes == steps + 1
    assert cross_entropy(100 * torch.eye(51), 1.0 + torch.arange(51) * 0.1, low=1.0, spacing=0.1) < 1e-6


def test_a_label_that_rounding_has_put_beside_its_end_is_that_end() -> None:
    """0.1 + 0.2 is above 0.3 and three times a float32 of 0.1 may be below it: what lies beyond is forgiven all the same."""
    labels = torch.tensor([0.3 - 2e-6, 2e-6, 0.2])
    errors = prediction_errors(torch.tensor([0.4, -0.1, 0.4]), labels, boundary="one_sided", low=0.0, high=0.3)
    assert errors.tolist() == [0.0, 0.0, pytest.approx(0.2)]
