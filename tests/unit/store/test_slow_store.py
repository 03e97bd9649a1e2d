"""A store whose file server does not answer: nobody is left without a line for longer than a minute."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from sentdist.inference.opening import store_root
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.store import access as slow_store
from sentdist.store import store as store_module
from sentdist.store.store import ArtifactStore
from tests.support.waiting import wait_for

CORPUS = RowsCorpus(source="nli/triplets", source_revision="r")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute that is over soon."""
    monkeypatch.setattr(slow_store, "TELL_AFTER_S", 0.3)
    monkeypatch.setattr(slow_store, "_watcher", [])


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("request_", ["open_input_stream", "get_file_info"])
def test_a_store_that_does_not_answer_is_reported_while_it_waits(
    request_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_back = threading.Event()

    class Away(fs.LocalFileSystem):  # type: ignore[misc]
        def open_input_stream(self, *asked: Any, **named: Any) -> Any:
            return self._answer("open_input_stream", *asked, **named)

        def get_file_info(self, *asked: Any) -> Any:
            return self._answer("get_file_info", *asked)

        def _answer(self, name: str, *asked: Any, **named: Any) -> Any:
            if name == request_:
                is_back.wait()
            return getattr(super(), name)(*asked, **named)

    monkeypatch.setattr(store_module, "open_root", lambda root: (Away(), str(root)))
    found: list[object] = []

    def ask() -> None:
        store = ArtifactStore(tmp_path / "store")
        found.extend([store.get(CORPUS)] if request_ == "open_input_stream" else [*store.artifacts(), None])

    with caplog.at_level(logging.WARNING):
        asking = threading.Thread(target=ask)
        asking.start()
        wait_for(lambda: "has not answered for" in caplog.text, what="a line")
        assert str(tmp_path / "store") in caplog.text and not found
        is_back.set()
        asking.join(timeout=30)
    assert found == [None]


@pytest.mark.usefixtures("soon")
def test_a_command_is_reported_at_its_first_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the store is a file, before anything of it is opened."""
    is_back, is_file = threading.Event(), Path.is_file

    def answer(path: Path) -> bool:
        return is_back.wait() and is_file(path)

    monkeypatch.setattr(Path, "is_file", answer)
    with caplog.at_level(logging.WARNING):
        asking = threading.Thread(target=store_root, args=[str(tmp_path / "store")])
        asking.start()
        try:
            wait_for(lambda: "has not answered for" in caplog.text, what="a line")
        finally:
            is_back.set()
            asking.join(timeout=30)


@pytest.mark.usefixtures("soon")
def test_threads_that_ask_at_once_begin_one_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(threading.Thread):
        def __init__(self, *asked: Any, **named: Any) -> None:
            super().__init__(*asked, **named)
            threading.Event().wait(0.05)

    def ask(_: int) -> None:
        with slow_store.warn_if_silent("store"):
            pass

    with ThreadPoolExecutor(max_workers=3) as threads:
        barrier = threading.Barrier(3)
        list(threads.map(lambda _: barrier.wait(), range(3)))  # three threads there are
        monkeypatch.setattr(slow_store.threading, "Thread", Slow)
        assert list(threads.map(ask, range(3))) == [None] * 3
    assert len(slow_store._watcher) == 1


@pytest.mark.usefixtures("soon")
def test_one_that_answers_is_not_spoken_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = ArtifactStore(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert store.get(CORPUS) is None
            threading.Event().wait(0.2)
    assert not caplog.records
