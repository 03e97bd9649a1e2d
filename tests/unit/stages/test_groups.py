"""Grouped corpora as stages: each rewording reaches the rows, is cached under a key of its own, and says what it did."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.data import augmentation as rewordings
from sentdist.data.corpus import OpenedCorpus
from sentdist.errors import DataError, EncoderError
from sentdist.plan.corpora.groups import Augmentation, GroupedCorpus
from sentdist.plan.stage import Json
from sentdist.stages.context import Context, folder_of
from sentdist.stages.corpora import rewording
from sentdist.stages.local import build_here
from sentdist.store.store import ArtifactStore
from tests.support.groups_data import groups, supmpn_values, write_inference
from tests.support.tiny_data import tiny_plan
from tests.support.tiny_encoders import tiny_writer


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
    assert plain["num_augmented"] == 0 and reported["num_augmented"] == reported["num_filled_positives"] == plain["num_filled_positives"]
    assert reported["num_unchanged"] == 0
    anchors = set(copies.sentences(copies.ids[0]))
    assert anchors & set(positives(copies)) and not anchors & set(positives(shorter))


def test_paraphrases_by_a_model_of_the_users_own(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    data, writer = write_inference(tmp_path / "data"), tiny_writer(tmp_path / "writer")
    section: Json = {"name": "paraphrases", "checkpoint": str(writer)}
    corpus, reported, stage, context = built(tmp_path, tiny_encoder_dir, section, data)
    assert reported["num_augmented"] == round(0.5 * float(str(reported["num_filled_positives"])))
    assert stage.augmentation is not None and str(stage.augmentation.source_revision).startswith("sha256:")
    assert str(writer) not in stage.model_dump_json()  # a place on this machine is no part of what is made
    assert len(set(positives(corpus)) - set(positives(built(tmp_path, tiny_encoder_dir, None, data)[0]))) > 20
    assert context.store.get(stage) is not None


class Thesaurus:
    """In place of WordNet: every word has one synonym."""

    def __init__(self, folder: Path | None) -> None:
        pass

    def of(self, word: str) -> list[str]:
        return [f"{word}-like"]


@pytest.mark.parametrize(("name", "is_kept"), [("word_deletion", False), ("synonyms", True)])
def test_as_many_words_are_reworded_as_the_recipe_says(name: str, is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewordings, "_Synonyms", Thesaurus)
    context = Context(store=ArtifactStore(tmp_path), data_root=None)
    sentence = " ".join(f"word{number}" for number in range(20))

    def reworded(fraction: float, seed: int = 0) -> list[str]:
        section = Augmentation.model_validate({"name": name, "fraction": fraction})
        return rewording(section, seed=seed, context=context)([sentence])[0].split()

    for fraction in (0.1, 0.3, 0.6):
        found = reworded(fraction)
        assert len(found) == (20 if is_kept else 20 - round(20 * fraction))
        assert sum(word in sentence.split() for word in found) == 20 - round(20 * fraction)
    assert reworded(0.3, seed=1) == reworded(0.3, seed=1) != reworded(0.3, seed=2)


@pytest.mark.data
def test_synonyms(tmp_path: Path, tiny_encoder_dir: Path, data_root: Path) -> None:
    data = write_inference(tmp_path / "data")
    (data / "nltk_data").symlink_to(data_root / "nltk_data")
    _, reported, stage, _ = built(tmp_path, tiny_encoder_dir, {"name": "synonyms"}, data)
    assert float(str(reported["num_unchanged"])) < 0.2 * float(str(reported["num_augmented"]))
    assert stage.augmentation is not None and stage.augmentation.source_revision is not None


def test_what_is_missing_is_reported_while_planning(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    data = write_inference(tmp_path / "data")
    (data / "nltk_data").mkdir()
    with pytest.raises(DataError, match=r"corpus\.augmentation: nltk corpora/wordnet: .* nltk\.downloader wordnet"):
        built(tmp_path, tiny_encoder_dir, {"name": "synonyms"}, data)
    with pytest.raises(EncoderError, match=r"corpus\.augmentation\.checkpoint.*no such folder"):
        built(tmp_path, tiny_encoder_dir, {"name": "paraphrases", "checkpoint": str(tmp_path / "parrot")}, data)
    with pytest.raises(EncoderError, match="without a commit"):
        built(tmp_path, tiny_encoder_dir, {"name": "paraphrases", "checkpoint": "owner/parrot"}, data)


def test_an_encoder_cannot_paraphrase(tmp_path: Path, tiny_encoder_dir: Path) -> None:
    data = write_inference(tmp_path / "data")
    with pytest.raises(EncoderError, match="which has no decoder"):
        built(tmp_path, tiny_encoder_dir, {"name": "paraphrases", "checkpoint": str(tiny_encoder_dir)}, data)
