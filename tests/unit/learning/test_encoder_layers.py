"""Encoders cut down to their first layers, and what is no encoder alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sentdist.errors import EncoderError, RecipeError
from sentdist.learning.encoder.card import EncoderCard
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from tests.support.tiny_data import tiny_plan, tiny_values, write_data

CARD = EncoderCard(base_model="tiny", objective="none")
SENTENCES = ["a dog runs", "two cats sleep on a red mat", "a man"]


@pytest.mark.parametrize("family", ["tiny_encoder_dir", "tiny_padded_dir"])
def test_the_first_layers_are_kept_as_they_are(family: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder: Path = request.getfixturevalue(family)
    whole, cut = SentenceEncoder.load(folder).eval(), SentenceEncoder.load(folder, layers=1).eval()
    assert (whole.model.config.num_hidden_layers, cut.model.config.num_hidden_layers) == (2, 1)
    weights = dict(whole.named_parameters())
    kept = dict(cut.named_parameters())
    assert kept.keys() == {name for name in weights if ".layer.1." not in name}
    assert all(torch.equal(weight, weights[name]) for name, weight in kept.items())
    cut.save(tmp_path / "cut", card=CARD)
    again = SentenceEncoder.load(tmp_path / "cut").eval()
    assert again.model.config.num_hidden_layers == 1
    with torch.no_grad():
        torch.testing.assert_close(again(again.tokenize(SENTENCES)), cut(cut.tokenize(SENTENCES)), rtol=0, atol=0)


def test_more_layers_than_there_are_is_refused(tiny_encoder_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="3"):
        SentenceEncoder.load(tiny_encoder_dir, layers=3)
    values = tiny_values(tiny_encoder_dir, methods={"base": {"encoder": {"layers": 3}}}, baseline="base")
    with pytest.raises(RecipeError, match=r"encoder.layers"):
        tiny_plan(values, data=write_data(tmp_path / "data"), store=tmp_path / "store")
