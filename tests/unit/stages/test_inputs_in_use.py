"""What a stage reads is what was planned with, and does not change while it is read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest

from sentdist.corpora.rows import RowsCorpus
from sentdist.data.sources import check_pinned, inspect_source
from sentdist.errors import DataError
from sentdist.learning.loop import StepReport
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import Train
from sentdist.stages.context import Context
from sentdist.stages.local import build_all
from sentdist.stages.text_stages import build_corpus_stage
from sentdist.store.record import Artifact
from sentdist.store.store import ASIDE, ArtifactStore
from sentdist.tasks.sts import StsTask
from sentdist.tasks.task import load_task
from tests.support.building import run_local
from tests.support.tasks_data import write_forums
from tests.support.tiny_data import tiny_plan, tiny_values, write_data


def _change(path: Path) -> None:
    """In place, so that memory into which the file is mapped changes with it; the lowest bit leaves most ids valid."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 8 * 8)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def _move_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


CHANGES: dict[str, Callable[[Path], None]] = {"changed": _change, "moved away": _move_away}
RESULTS = (".safetensors", ".npy", ".parquet", ".arrow", "scores.json")  # what holds no seconds
FILES = {"corpus": "corpus/*/rows.arrow", "tokens": "tokens/*/ids.npy", "bank": "bank/*/shards/*"}


@dataclass(frozen=True)
class Undisturbed:
    """A store before the first training on banks, and what the results of the whole plan are then, by place and file."""

    begun: Path
    digests: dict[str, dict[str, str]]


def _reads_banks(stage: Stage) -> bool:
    return isinstance(stage, Train) and bool(stage.banks)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("kind", "change"), [("corpus", "changed"), ("tokens", "moved away"), ("bank", "changed")])
def test_a_training_on_an_input_that_changes_under_it_is_not_published(
    kind: str, change: str, undisturbed: Undisturbed, tmp_path: Path, tiny_encoder_dir: Path
) -> None:
    shutil.copytree(undisturbed.begun, tmp_path / "store")
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(tmp_path / "data"), store=tmp_path / "store")
    changed: list[Path] = []

    def listen(stage: Stage, _: object, event: object) -> None:
        if _reads_banks(stage) and isinstance(event, StepReport) and event.step == 2 and not changed:
            changed.extend(sorted((tmp_path / "store").glob(FILES[kind]))[:1])
            CHANGES[change](changed[0])

    run_local(plan, context, listen=listen)
    assert changed
    assert _digests(context.store, plan.stages) == undisturbed.digests
    assert len(list((tmp_path / "store" / ASIDE).iterdir())) == 1


@pytest.fixture(scope="module")
def undisturbed(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("undisturbed")
    plan, context = tiny_plan(tiny_values(tiny_encoder_dir), data=write_data(folder / "data"), store=folder / "store")
    build_all([*takewhile(lambda stage: not _reads_banks(stage), plan.stages)], context)
    shutil.copytree(folder / "store", folder / "begun")
    run_local(plan, context)
    torch.set_num_threads(before)
    return Undisturbed(folder / "begun", _digests(context.store, plan.stages))


def _digests(store: ArtifactStore, stages: tuple[Stage, ...]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for stage in stages:
        artifact = store.get(stage)
        assert isinstance(artifact, Artifact)
        digests = artifact.record.digests
        found[stage.place] = {name: digests[name] for name in digests if name.endswith(RESULTS)}
    return found


CHANGED = "another content than when the run was planned"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "data"
    for name, text in {
        "rows.csv": "sentence1,sentence2,score\none,two,1\nthree,four,2\nfive,six,3\n",
        "test.csv": "sentence1,sentence2,score\nseven,eight,1\nnine,ten,2\n",
        "faq_docs.csv": "document_id,text\nd,an answer\n",
        "faq_queries.csv": "query_id,query\nq,a question\n",
        "faq_qrels.csv": "query_id,document_id,relevance\nq,d,1\n",
        "beir/corpus.jsonl": '{"_id": "d", "text": "an answer"}\n',
        "beir/queries.jsonl": '{"_id": "q", "text": "a question"}\n',
        "beir/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\td\t1\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    write_forums(root / "forums")
    return root


def revision(data: Path, name: str) -> str:
    return inspect_source(name, data_root=data).digest


def test_each_file_of_a_source_is_pinned(data: Path) -> None:
    for name, files in {
        "rows": ["rows.csv"],
        "faq": ["faq_docs.csv", "faq_queries.csv", "faq_qrels.csv"],
        "beir": ["beir/corpus.jsonl", "beir/queries.jsonl", "beir/qrels/test.tsv", "beir/qrels/train.tsv"],
        "forums": ["forums/corpus.json", "forums/retrieval_split.json"],
    }.items():
        planned = revision(data, name)
        for file in (data / one for one in files):
            check_pinned(name, planned, data_root=data)
            before = file.read_bytes() if file.exists() else b""
            file.write_bytes((before or b"query-id\tcorpus-id\tscore\n1\t1\t1") + b"\n")
            with pytest.raises(DataError, match=CHANGED):
                check_pinned(name, planned, data_root=data)
            file.write_bytes(before) if before else file.unlink()


def test_corpora_and_tasks_of_changed_data_are_not_made(data: Path, tmp_path: Path) -> None:
    planned, context = revision(data, "rows"), Context(store=ArtifactStore(tmp_path / "store"), data_root=str(data))
    stage = RowsCorpus(source="rows", source_revision=planned, split=None, columns=("sentence1", "sentence2"))
    task = StsTask(name="mine", source="rows", revision=planned)
    before = (data / "rows.csv").read_text()
    (data / "rows.csv").write_text(before.replace("one", "another"))
    with pytest.raises(DataError, match=CHANGED):
        build_corpus_stage(stage, context)
    with pytest.raises(DataError, match=CHANGED):
        load_task(task, str(data))
    assert not context.store.has(stage)
    (data / "rows.csv").write_text(before)
    build_corpus_stage(stage, context)
    assert context.store.has(stage) and load_task(task, str(data)).sentences
