"""A search whose store is a bucket: it runs, is stopped, goes on and repeats nothing; a bucket that fails for a moment changes nothing."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sentdist.errors import StoreError
from sentdist.execution.searching.in_process import search_in_process
from sentdist.plan.stage import Json
from sentdist.plan.suggestions import PlannedSearch
from sentdist.stages.context import Context
from sentdist.store.searches import SearchEvent, load_search, search_names
from sentdist.store.store import ArtifactStore
from sentdist.tracking.search_runs import SearchRuns
from tests.support.faulty_s3 import FaultyS3, faulty_s3
from tests.support.tiny_data import write_data
from tests.support.tiny_search import Killed, killed_after, outcome, tiny_search

ONLY: dict[str, Json] = {"methods": {"fine_tuned": {"objective": {"name": "info_nce"}}}, "baseline": None}


@pytest.fixture(scope="module")
def s3() -> Iterator[FaultyS3]:
    with faulty_s3() as made:
        yield made


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SENTDIST_CACHE", str(tmp_path / "cache"))


def planned_for(encoder: Path, folder: Path, *, samples: int) -> tuple[PlannedSearch, Context]:
    space: Json = {"training.learning_rate": {"log": [1e-4, 1e-2]}}
    return tiny_search(encoder, write_data(folder / "data"), folder / "store", changes=ONLY, suggest="tpe", samples=samples, space=space)


@pytest.mark.nightly
def test_a_search_in_a_bucket_ends_as_one_on_a_disk_however_often_it_was_stopped(
    s3: FaultyS3, tmp_path: Path, tiny_encoder_dir: Path
) -> None:
    planned, on_disk = planned_for(tiny_encoder_dir, tmp_path, samples=5)
    alone = search_in_process(planned, on_disk, print_line=lambda line: None)
    in_bucket = replace(on_disk, store=ArtifactStore(s3.root(uuid.uuid4().hex)))
    for number in (4, 9):
        with pytest.raises(Killed):
            search_in_process(planned, in_bucket, print_line=lambda line: None, watch=killed_after(number))

    def throttled(events: Sequence[SearchEvent]) -> None:
        if len(events) == 14:
            s3.be("throttled", for_requests=1)

    found = search_in_process(planned, in_bucket, print_line=lambda line: None, watch=throttled)
    assert outcome(found) == outcome(alone)
    for store in (on_disk.store, in_bucket.store):
        for trial in found.trials:
            curve = SearchRuns(found, store).curve(trial)
            assert {rung.step for rung in trial.rungs} <= {step for name, _, _, step in curve if name == "dev_score"}, trial.state
            assert "loss" in {name for name, *_ in curve}
    assert found.finalists == alone.finalists and found.spent_sentences == alone.spent_sentences, "nothing is built twice"
    paid = [key for trial in found.trials for rung in trial.rungs for key in rung.paid_for]
    assert len(paid) == len(set(paid))
    assert not list(in_bucket.store.artifacts("rung")), "nothing goes on from them any more"
    assert search_names(in_bucket.store) == ["tiny"] and load_search(in_bucket.store, "tiny") == found
    before = s3.num_requests
    assert outcome(search_in_process(planned, in_bucket, print_line=lambda line: None)) == outcome(alone)
    assert s3.num_requests - before < 60, "submitted again it only reads what was noted"


def test_a_bucket_that_refuses_ends_the_search_with_a_sentence(s3: FaultyS3, tmp_path: Path, tiny_encoder_dir: Path) -> None:
    planned, on_disk = planned_for(tiny_encoder_dir, tmp_path, samples=2)
    in_bucket = replace(on_disk, store=ArtifactStore(s3.root(uuid.uuid4().hex)))

    def expired(events: Sequence[SearchEvent]) -> None:
        if len(events) == 6:
            s3.be("expired credentials")

    with pytest.raises(StoreError, match=re.escape("credentials")) as raised:
        search_in_process(planned, in_bucket, print_line=lambda line: None, watch=expired)
    s3.be(None)
    assert "secret" not in str(raised.value)
    record = load_search(in_bucket.store, "tiny")
    assert record.reason is None
    assert len(search_in_process(planned, in_bucket, print_line=lambda line: None).trials) == 2
