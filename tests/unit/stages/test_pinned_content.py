"""What a stage reads is what was planned with: other content is never kept under the key of the planned one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sentdist.data.sources.hub import check_pinned, inspect_source
from sentdist.errors import DataError
from sentdist.plan.corpora.graded import GradedCorpus, GradedPart
from sentdist.plan.corpora.kind import CorpusStage
from sentdist.plan.corpora.relations import LinkTask, RelationFile, RelationPart
from sentdist.plan.corpora.rows import RowsCorpus
from sentdist.plan.specs import Task
from sentdist.plan.task_kinds import ScoredTask
from sentdist.stages.context import Context
from sentdist.stages.corpora import build_corpus_stage
from sentdist.stages.tasks.load import load_task
from sentdist.store.store import ArtifactStore
from tests.support.tasks_data import write_forums

CHANGED = "another content than when the run was planned"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "data"
    for name, text in {
        "rows.csv": "sentence1,sentence2,score\none,two,1\nthree,four,2\nfive,six,3\n",
        "more.csv": "sentence1,sentence2\na,b\nc,d\ne,f\n",
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
    return inspect_source(name, data_root=data).revision


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("rows", ["rows.csv"]),
        ("faq", ["faq_docs.csv", "faq_queries.csv", "faq_qrels.csv"]),
        ("beir", ["beir/corpus.jsonl", "beir/queries.jsonl", "beir/qrels/test.tsv", "beir/qrels/train.tsv"]),
        ("forums", ["forums/corpus.json", "forums/retrieval_split.json"]),
    ],
)
def test_each_file_of_a_source_is_pinned(name: str, files: list[str], data: Path) -> None:
    planned = revision(data, name)
    for file in files:
        check_pinned(name, planned, data_root=data)
        before = (data / file).read_bytes() if (data / file).exists() else None
        (data / file).write_bytes((before or b"") + b"\n")
        with pytest.raises(DataError, match=CHANGED):
            check_pinned(name, planned, data_root=data)
        if before is None:
            (data / file).unlink()
        else:
            (data / file).write_bytes(before)
    check_pinned("generated/nli", "any", data_root=None)


def plain(data: Path) -> CorpusStage:
    return RowsCorpus(source="rows", source_revision=revision(data, "rows"), split=None, columns=("sentence1", "sentence2"))


def graded(data: Path) -> CorpusStage:
    part = GradedPart(source="test", source_revision=revision(data, "test"), split=None, scale="zero_to_five")
    return GradedCorpus(parts=(part,), without=(sts(data),))


def sts(data: Path) -> Task:
    return Task(name="mine", kind="sts", source="rows", revision=revision(data, "rows"))


def links(data: Path) -> ScoredTask:
    """Of two relations; it is a file of the second that changes."""
    files = [RelationFile(source=name, source_revision=revision(data, name), split=None) for name in ("more", "rows")]
    first, second = (
        RelationPart(name=name, construction="pairs", sources=(file,), columns=("sentence1", "sentence2"))
        for name, file in zip(("near", "twin"), files, strict=True)
    )
    return LinkTask(source="rows", revision="key", relations=(first, second), held_out=1, seed=0)


@pytest.mark.parametrize("stage_of", [plain, graded])
def test_a_corpus_of_changed_data_is_not_built(stage_of: Callable[[Path], CorpusStage], data: Path, tmp_path: Path) -> None:
    stage, context = stage_of(data), Context(store=ArtifactStore(tmp_path / "store"), data_root=str(data))
    before = (data / "rows.csv").read_text()
    (data / "rows.csv").write_text(before.replace("one", "another"))
    with pytest.raises(DataError, match=CHANGED):
        build_corpus_stage(stage, context)
    assert not context.store.has(stage)
    (data / "rows.csv").write_text(before)
    build_corpus_stage(stage, context)
    assert context.store.has(stage)


@pytest.mark.parametrize("task_of", [sts, links])
def test_a_task_of_changed_data_is_not_scored(task_of: Callable[[Path], ScoredTask], data: Path) -> None:
    task = task_of(data)
    assert load_task(task, str(data)).sentences
    with (data / "rows.csv").open("a") as file:
        file.write("eleven,twelve,4\n")
    with pytest.raises(DataError, match=CHANGED):
        load_task(task, str(data))
