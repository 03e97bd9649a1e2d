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
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["similarity.csv", "similarity.png", "similarity.svg"]
    assert len((tmp_path / "out/similarity.csv").read_text().splitlines()) == 1 + 2 * 3


def test_sentences_without_topics(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("It rains.\nI like soup.\n")
    assert read_sentences(tmp_path / "plain.txt") == (["It rains.", "I like soup."], None)


def test_files_that_are_refused(tmp_path: Path) -> None:
    for text, says in [
        ("weather\tIt rains.\nI like soup.\n", "lines of 1 and 2 columns"),
        ("", "lines of no columns"),
        ("a\tb\tc\n", "lines of 3 columns"),
    ]:
        (tmp_path / "bad.tsv").write_text(text)
        with pytest.raises(DataError, match=says):
            read_sentences(tmp_path / "bad.tsv")
