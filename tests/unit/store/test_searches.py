"""Searches in a store: Optuna's journal around damaged lines, and logs of older versions."""

from __future__ import annotations

import json
from pathlib import Path

import optuna

from sentdist.store.searches import find_search, open_journal, search_names, search_record
from sentdist.store.store import ArtifactStore

RUNG = {"key": "k", "place": "train/k", "step": 5, "last_dev": 49.0, "sentences": 100, "paid_s": 9.0, "paid_for": ["a"]}
LOG = (
    {"what": "begun", "identity": "other", "recipe": {}, "methods": {"rcl": []}, "at": 1.0},
    {"what": "suggested", "number": 9, "method": "rcl", "suggestion": {}, "train": "t", "at": 1.0},
    {"what": "begun", "identity": "one", "recipe": {"name": "small"}, "methods": {"rcl": ["training.learning_rate"]}, "at": 5.0},
    {"what": "suggested", "number": 0, "method": "rcl", "suggestion": {"training.learning_rate": 1e-5}, "train": "t0", "at": 10.0},
    {"what": "suggested", "number": 1, "method": "rcl", "suggestion": {"training.learning_rate": 1e-4}, "train": "t1", "at": 11.0},
    {"what": "rung", "number": 0, "share": 0.5, "dev": 50.0, "seconds": 30.0, "at": 20.0} | RUNG,
    {"what": "rung", "number": 0, "share": 1.0, "dev": 55.0, "seconds": 60.0, "at": 35.0} | RUNG,
    {"what": "ended", "number": 0, "state": "finished", "error": None, "at": 36.0},
    {"what": "left", "at": 41.0},
    {"what": "chosen", "finalists": [], "reason": "all trials are made", "at": 45.0},
)


def test_the_log_of_an_older_version_is_read(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.files.write_text("searches/small.jsonl", "".join(f"12345678 {json.dumps(event)}\n" for event in LOG) + "half a li")
    found = find_search(store, "small")
    assert found is not None and search_names(store) == ["small"] and find_search(store, "another") is None
    assert (found.identity, found.began, found.reason, found.spent_s) == ("one", 5.0, "all trials are made", 40.0)
    assert [(trial.number, trial.state, trial.dev, trial.seconds) for trial in found.trials] == [
        (0, "finished", 55.0, 60.0),
        (1, "running", None, 0.0),
    ]
    assert found.spent_sentences == 100 and found.trials[0].ended == 36.0


def test_a_journal_is_read_around_a_line_that_a_crash_has_cut_off(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    study = optuna.create_study(storage=open_journal(store, "small"), study_name="one")
    file = tmp_path / "searches" / "small.journal"
    with file.open("ab") as opened:
        opened.write(b'{"op_code": 4, "stu\xff')
    study = optuna.load_study(storage=open_journal(store, "small"), study_name="one")
    assert search_record(open_journal(store, "small"), "small") is None, "nothing was submitted"
    study.tell(study.ask(), 1.0)
    assert [trial.value for trial in optuna.load_study(storage=open_journal(store, "small"), study_name="one").trials] == [1.0]
