"""A search on two hosts: both train, and one trial at a time it ends as one in this process."""

from __future__ import annotations

import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from sentdist.execution.searching.in_process import search_in_process
from sentdist.store.searches import SearchRecord, load_search
from sentdist.store.store import ArtifactStore
from tests.cluster.hosts import Hosts
from tests.cluster.small_search import small_search
from tests.support.tiny_data import write_data
from tests.support.tiny_search import outcome

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(1200), pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_encoder_dir: Path) -> Path:
    """What the hosts and this process share: data and an encoder; stores are made beside them."""
    found = tmp_path_factory.mktemp("place")
    write_data(found / "data")
    shutil.copytree(tiny_encoder_dir, found / "encoder")
    return found


@pytest.fixture(scope="module")
def alone(place: Path) -> SearchRecord:
    return search_in_process(*small_search(place / "here"), print_line=lambda line: None)


def test_one_trial_at_a_time_it_ends_as_in_this_process(two_hosts: Hosts, place: Path, alone: SearchRecord) -> None:
    assert {trial.state for trial in alone.trials} == {"finished", "pruned"}
    printed = two_hosts.play("search", str(place / "one"), num_hosts=2)
    found = load_search(ArtifactStore(place / "one"), "tiny")
    assert outcome(found) == outcome(alone), printed
    assert found.finalists == alone.finalists and found.spent_sentences == alone.spent_sentences


def test_two_trials_at_once_train_on_both_hosts(two_hosts: Hosts, place: Path, alone: SearchRecord) -> None:
    """Decisions then depend on who comes first; a training does not depend on its host."""
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(two_hosts.play, "search-two", str(place / "two"), num_hosts=2)
        trained = set[int]()
        while not job.done():
            trained |= {host for host in (0, 1) if trains(two_hosts, host)}
            time.sleep(0.1)
        assert "2 trials at once" in job.result()
    assert trained == {0, 1}
    found = load_search(ArtifactStore(place / "two"), "tiny")
    assert len(found.trials) == len(alone.trials) and found.reason == "all trials are made"
    scores = {(trial.train, rung.share): rung.dev for trial in alone.trials for rung in trial.rungs}
    both = {(trial.train, rung.share): rung.dev for trial in found.trials for rung in trial.rungs}
    same = scores.keys() & both.keys()
    assert len(same) > 5 and all(scores[one] == both[one] for one in same)
    paid = [key for trial in found.trials for rung in trial.rungs for key in rung.paid_for]
    assert len(paid) == len(set(paid)), "nothing is built twice"


def trains(hosts: Hosts, host: int) -> bool:
    """Whether a process of a host builds a rung or a training: it is named after the stage, or after its group."""
    for pid in hosts.pids(host):
        with suppress(OSError):  # it has ended
            if re.match(rb"ray::(rung |train |workers-)", (Path("/proc") / str(pid) / "cmdline").read_bytes()):
                return True
    return False
