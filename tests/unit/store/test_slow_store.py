"""A store whose file server does not answer: nobody is left without a line for longer than a minute."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.store import slow_store
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
def test_a_store_that_does_not_answer_is_reported_while_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for request_ in ["open_input_stream"]:
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
