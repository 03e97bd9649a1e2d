"""Which encoder a name stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentdist.errors import StoreError
from sentdist.inference.opening import encoder_folder
from sentdist.store.store import ArtifactStore
from tests.support.planning import plan_of, small_recipe
from tests.support.synthetic_sweeps import fill_store


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    plan = plan_of(small_recipe(methods={"one": {"objective": {"name": "info_nce"}}}, seeds=[0, 1], evaluation={"tasks": ["stsb"]}))
    made = ArtifactStore(tmp_path / "store")
    fill_store(made, plan, noise=lambda trial: 1.0, num_items={"stsb": 20})
    return made


def test_a_training_is_known_by_key_and_label_though_its_scores_bear_the_label_too(store: ArtifactStore) -> None:
    train = min(store.artifacts("train"), key=lambda artifact: artifact.record.label)
    assert sum(train.record.label == other.record.label for other in store.artifacts()) > 1
    folder = str(store.folder(train))
    for name in (train.key, train.key[:8], train.key[:5], train.record.place, train.record.place.partition("/")[2], train.record.label):
        assert encoder_folder(name, store) == folder


def test_all_else_is_a_checkpoint_as_it_stands(store: ArtifactStore, tmp_path: Path) -> None:
    for name in ("minilm-l6", "owner/name", str(tmp_path)):
        assert encoder_folder(name, store) == name
    with pytest.raises(StoreError, match="expected one artifact"):
        encoder_folder("0123456789", store)
