"""A search on a cluster whose store is a bucket: stopped and submitted again it ends as one in this process on a disk."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sentdist.execution.searching.in_process import search_in_process
from sentdist.store.searches import RungReached, SearchEvent
from sentdist.store.store import ArtifactStore
from tests.cluster.small_search import small_search
from tests.support.faulty_s3 import faulty_s3
from tests.support.tiny_data import write_data
from tests.support.tiny_search import outcome


class EndedError(Exception):
    """Somebody ends the search."""


def stops_at_the_fifth_rung(events: Sequence[SearchEvent]) -> None:
    if isinstance(events[-1], RungReached) and sum(isinstance(event, RungReached) for event in events) == 5:
        raise EndedError


pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.usefixtures("one_thread")]


def test_a_search_in_a_bucket(cluster: Any, tmp_path: Path, tiny_encoder_dir: Path) -> None:
    from sentdist.execution.searching.on_cluster import search_on_cluster

    write_data(tmp_path / "data")
    shutil.copytree(tiny_encoder_dir, tmp_path / "encoder")
    planned, on_disk = small_search(tmp_path / "disk")
    alone = search_in_process(planned, on_disk, print_line=lambda line: None)
    with faulty_s3() as s3:
        root = s3.root(uuid.uuid4().hex).replace("s3://", "s3://key:secret@")  # other processes have no credentials of their own
        in_bucket = replace(on_disk, store=ArtifactStore(root))
        with pytest.raises(EndedError):
            search_on_cluster(planned, in_bucket, print_line=lambda line: None, watch=stops_at_the_fifth_rung, at_once=1)
        found = search_on_cluster(planned, in_bucket, print_line=lambda line: None, at_once=1)
        assert outcome(found) == outcome(alone)
        assert found.finalists == alone.finalists and found.spent_sentences == alone.spent_sentences, "nothing is built twice"
        assert not list(in_bucket.store.artifacts("rung")) and not list(in_bucket.store.files.names("running"))
        assert in_bucket.store.files.names("tune/tiny"), "Tune's own files"
