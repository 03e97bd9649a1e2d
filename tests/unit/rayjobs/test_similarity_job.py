"""Sentences from a file and encoders by name become one figure of heat maps."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayjobs.benchmarks.similarity import draw, read_sentences
from sentdist.errors import DataError


def test_a_figure_of_two_encoders(tmp_path: Path, tiny_encoder_dir: Path, planted_encoder_dir: Path) -> None:
    file = tmp_path / "sentences.tsv"
    file.write_text("dogs\ta dog runs\ndogs\tthe dog walks quickly\nfood\ta woman eats food\n\n")
    caption = draw(file, [f"random={tiny_encoder_dir}", f"planted={planted_encoder_dir}"], tmp_path / "out")
    assert "3 sentences" in caption and "planted" in caption
    assert len((tmp_path / "out/similarity.csv").read_text().splitlines()) == 1 + 2 * 9
    file.write_text("It rains.\nI like soup.\n")
    assert read_sentences(file) == (["It rains.", "I like soup."], None)
    for text, says in [("weather\tIt rains.\nI like soup.\n", "1 and 2 columns"), ("", "no columns")]:
        file.write_text(text)
        with pytest.raises(DataError, match=says):
            read_sentences(file)
