"""Grouped corpora as stages: each rewording reaches the rows, is cached under a key of its own, and says what it did."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.corpora.groups import Augmentation, GroupedCorpus, reworded
from sentdist.corpora.kind import Reading
from sentdist.data.corpus import OpenedCorpus
from sentdist.errors import DataError, EncoderError
from sentdist.recipe.stage import Json
from sentdist.stages.context import Context, folder_of
from sentdist.stages.local import build_here
from tests.support.groups_data import groups, supmpn_values, write_inference
from tests.support.tiny_data import tiny_plan


def built(tmp_path: Path, encoder: Path, augmentation: Json, data: Path) -> tuple[OpenedCorpus, dict[str, Json], GroupedCorpus, Context]:
    """The corpus of a recipe with that augmentation, and what its record says of the premises."""
    methods: Json = {"supmpn": {"objective": {"name": "supmpn"}, "select": False}}
    values = supmpn_values(encoder, corpus=groups(4, 2, augmentation=augmentation), corpora={}, methods=methods, selection=None)
    plan, context = tiny_plan(values | {"baseline": None}, data=data, store=tmp_path / "store")
    stage = next(stage for stage in plan.stages if isinstance(stage, GroupedCorpus))
    premises = build_here(stage, context).record.results["premises"]
    assert isinstance(premises, dict)
    return OpenedCorpus.open(folder_of(stage, context)), premises, stage, context


def positives(corpus: OpenedCorpus) -> list[str]:
    return corpus.sentences(corpus.ids[1:5].ravel())


def test_deleted_words(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    data = write_inference(tmp_path / "data")
    copies, plain, _, _ = built(tmp_path, tiny_encoder_dir, None, data)
    shorter, reported, _, _ = built(tmp_path, tiny_encoder_dir, {"name": "word_deletion"}, data)
    section, sentence = Augmentation(name="word_deletion", fraction=0.3), " ".join(f"word{number}" for number in range(20))
    found = [reworded([sentence], section, seed=seed, reading=Reading(root=data)) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2] and len(found[0][0].split()) == 14
    assert plain["num_augmented"] == 0 and reported["num_augmented"] == reported["num_filled_positives"] == plain["num_filled_positives"]
    assert reported["num_unchanged"] == 0
    anchors = set(copies.sentences(copies.ids[0]))
    assert anchors & set(positives(copies)) and not anchors & set(positives(shorter))


def test_what_is_missing_is_reported_while_planning(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    data = write_inference(tmp_path / "data")
    (data / "nltk_data").mkdir()
    with pytest.raises(DataError, match=r"corpus\.augmentation: nltk corpora/wordnet: .* nltk\.downloader wordnet"):
        built(tmp_path, tiny_encoder_dir, {"name": "synonyms"}, data)
    with pytest.raises(EncoderError, match=r"corpus\.augmentation\.checkpoint.*no such folder"):
        built(tmp_path, tiny_encoder_dir, {"name": "paraphrases", "checkpoint": str(tmp_path / "parrot")}, data)
    with pytest.raises(EncoderError, match="which has no decoder"):
        built(tmp_path, tiny_encoder_dir, {"name": "paraphrases", "checkpoint": str(tiny_encoder_dir)}, data)
