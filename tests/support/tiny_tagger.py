"""A tagger for the tiny data: articles, prepositions, verbs, and the rest."""

from __future__ import annotations

from collections.abc import Sequence

TAGS = {"a": "DET", "the": "DET", "in": "ADP", "on": "ADP", "near": "ADP", "under": "ADP", "today": "ADV"}


def tag(sentences: Sequence[str]) -> list[list[tuple[str, str]]]:
    return [[(word, TAGS.get(word, "VERB" if word.endswith("s") else "NOUN")) for word in sentence.split()] for sentence in sentences]
