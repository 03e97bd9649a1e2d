"""Every file that is read here, in every way it can be damaged: one sentence with its path, soon; never a traceback, never forever."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from sentdist.cli import app
from sentdist.data.augmentation import find_nltk, nltk_bytes
from sentdist.data.corpus import OpenedCorpus
from sentdist.data.sources.hub import inspect_source, read_source
from sentdist.data.tagging import FileTargets, count_sentences, write_counts, write_targets
from sentdist.data.texts import open_texts
from sentdist.errors import SentdistError
from sentdist.files import read_json_lines
from sentdist.inference.embedding_file import check_made_by, open_embeddings
from sentdist.learning.bank import FileBank
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.write_folder import EncoderCard
from sentdist.learning.objective import read_heads
from sentdist.learning.paraphrase import paraphrase
from sentdist.learning.relation_file import Relations, read_relations, write_relations
from sentdist.plan.recipe import load_recipe, recipe_text
from sentdist.report.embedding_figures import SAMPLE_FILE, SPECTRUM_FILE, _sample, _spectrum
from sentdist.report.score_rows import ResultRow, read_items
from sentdist.stages.planning.resolve import FileResolver
from tests.support.damage import CERTAIN, POSSIBLE
from tests.support.planning import small_values
from tests.support.tiny_encoders import SENTENCES, WIDTH, tiny_encoder

LONGEST_S = 2.0  # of this process's time
ROWS = [{"sentence1": one, "sentence2": other, "score": 1.5} for one, other in pairwise(SENTENCES)]
PLAIN_TEXT = {"half", "some bytes", "last bytes", "deep", "a number"}  # of a text file: what is left is text, too
MARKED_TEXT = frozenset(PLAIN_TEXT | {"utf-16"})  # of one whose mark is looked at: UTF-16 is read as what it is

RECOGNISED_TEXT = MARKED_TEXT | {"utf-16 without mark"}  # of one whose encoding is looked for


@dataclass(frozen=True, kw_only=True)
class Reader:
    """make: writes what is read into a folder. file: the one that is damaged. read: reads it.

    takes: damages that leave something which is valid, and that only a digest could tell from what was written.
    """

    make: Callable[[Path], object]
    file: str
    read: Callable[[Path], object]
    takes: frozenset[str] = frozenset()


def _table(folder: Path) -> None:
    (folder / "my").mkdir()
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, folder / "my/pairs.parquet")
    pyarrow.csv.write_csv(table, folder / "my/commas.csv")
    (folder / "my/tabs.tsv").write_text("sentence1\tsentence2\n" + "".join(f"{row['sentence1']}\t{row['sentence2']}\n" for row in ROWS))
    (folder / "my/lines.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "my/plain.txt").write_text("".join(f"{row['sentence1']}\n" for row in ROWS))


def _source(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        inspect_source(name, data_root=folder)
        return read_source(name, data_root=folder).to_pylist()

    return read


def _texts(name: str, *columns: str) -> Callable[[Path], object]:
    return lambda folder: list(open_texts(str(folder / name), columns=columns).batches(3))


def _releases(folder: Path) -> None:
    (folder / "my").mkdir()
    (folder / "my/Twitter_URL_Corpus_test.txt").write_text("one\tother\t(6, 6)\thttp://a\n" * 9)
    (folder / "my/test.data").write_text("7\ttopic\tfirst\tsecond\t5\ttags\ttags\n" * 9)
    (folder / "my/sem_text_rel_ranked.csv").write_text('PairID,Text,Score\nA-1,"It, rains.\nIt pours.",0.9\n')
    (folder / "askubuntu").mkdir()
    (folder / "askubuntu/text_tokenized.txt").write_text("".join(f"{n}\ttitle {n}\tbody {n}\n" for n in range(1, 7)))
    for split in ("dev", "test"):
        (folder / f"askubuntu/{split}.txt").write_text("1\t4 5\t3 4 5\t1.0 9.0 2.0\n")
    (folder / "scidocs").mkdir()
    data = {"corpus": {"a": {"title": "A"}, "b": {"title": "B"}}, "test": {"cite": {"a": {"b": 1}}}}
    (folder / "scidocs/data.json").write_text(json.dumps(data))


def _corpus(folder: Path) -> None:
    from sentdist.data.corpus import build_corpus

    build_corpus(pa.Table.from_pylist(ROWS), columns=("sentence1", "sentence2"), folder=folder)


def _read_corpus(folder: Path) -> object:
    corpus = OpenedCorpus.open(folder)
    return [list(block) for block in corpus.sentence_blocks()], corpus.ids.tolist()


def _targets(folder: Path) -> None:
    def tagger(sentences: object) -> list[list[tuple[str, str]]]:
        return [[(word, "X") for word in sentence.split()] for sentence in sentences]  # type: ignore[attr-defined]

    tags, words = count_sentences(SENTENCES, tagger=tagger, tagger_name="test")
    part = folder / "0.npz"
    with part.open("wb") as file:
        write_counts(file, tags, words)
    write_targets(folder, [part], num_words=50)


def _read_targets(folder: Path) -> object:
    return FileTargets(folder).rows(np.arange(3))


def _bank(folder: Path) -> None:
    (folder / "shards").mkdir()
    np.save(folder / "shards/00000.npy", np.ones((9, 4), dtype=np.float32))
    (folder / "bank.json").write_text(json.dumps({"num_sentences": 9, "width": 4, "dtype": "float32", "rows_per_shard": 16}))


def _encoder(folder: Path) -> None:
    SentenceEncoder.load(tiny_encoder(folder / "plain", "bert"), pooling="cls_mlp").save(
        folder / "own", card=EncoderCard(base_model="tiny", objective="none")
    )
    (folder / "old").mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / "plain" / name, folder / "old" / name)
    torch.save(load_file(folder / "plain/model.safetensors"), folder / "old/pytorch_model.bin")


def _writer(folder: Path) -> None:
    from tests.support.tiny_encoders import tiny_writer

    tiny_writer(folder / "t5")


def _load(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        encoder = SentenceEncoder.load(folder / name)
        with torch.no_grad():
            return encoder(encoder.tokenize(["a man plays"]))

    return read


def _pinned(name: str) -> Callable[[Path], object]:
    return lambda folder: FileResolver().encoder(str(folder / name), revision=None, where="encoder.checkpoint")


def _relations(folder: Path) -> None:
    write_relations(folder, Relations(names=("one", "two"), vectors=np.ones((2, 4), dtype=np.float32)))


def _artifact(folder: Path) -> None:
    for name in ("items", "cloud"):
        (folder / name).mkdir()
    pq.write_table(pa.table({"similarity": [0.1, 0.2], "score": [1.0, 2.0]}), folder / "items/stsb.parquet")
    pq.write_table(pa.table({"singular_value": [0.1, 0.2]}), folder / SPECTRUM_FILE)
    sample = {"sentence": ["a", "b"], "subset": ["x", "y"], "embedding": [[0.1, 0.2], [0.3, 0.4]]}
    pq.write_table(pa.table(sample), folder / SAMPLE_FILE)
    (folder / "history.jsonl").write_text('{"step": 1, "loss": 0.5}\n' * 5)
    save_file({"head.weight": torch.ones(2, 2)}, folder / "heads.safetensors")


def _items(folder: Path) -> object:
    row = ResultRow(method="m", label="m", params={}, seed=0, scores={"stsb": 1.0}, items={"stsb": folder / "items/stsb.parquet"})
    return read_items(row, "stsb")


def _embeddings(folder: Path) -> None:
    np.save(folder / "a.npy", np.ones((3, 4), dtype=np.float32))
    (folder / "a.npy.json").write_text(json.dumps({"encoder": "e", "pooling": "mean", "max_length": 8}))


def _read_embeddings(folder: Path) -> object:
    found = open_embeddings(folder / "a.npy")
    return check_made_by(folder / "a.npy", found, width=4, facts={"encoder": "e", "pooling": "mean", "max_length": 8})


def _nltk(folder: Path) -> None:
    (folder / "taggers/universal_tagset").mkdir(parents=True)
    (folder / "taggers/universal_tagset/en-ptb.map").write_text("NN\tNOUN\n")


def _read_nltk(folder: Path) -> object:
    return nltk_bytes(find_nltk("taggers/universal_tagset", folder=folder), "en-ptb.map")


def _readers() -> Iterator[tuple[str, Reader]]:
    values = small_values()
    values["corpus"] = values.pop("corpus")  # it comes last: half a recipe has none
    yield "recipe", Reader(
        make=lambda folder: (folder / "r.yaml").write_text(recipe_text(values)), file="r.yaml", read=lambda folder: load_recipe(folder / "r.yaml"),
    )  # fmt: skip
    flips = frozenset({"some bytes", "last bytes"})
    yield "parquet", Reader(make=_table, file="my/pairs.parquet", read=_source("my/pairs"), takes=flips)
    for name in ("commas.csv", "tabs.tsv", "lines.jsonl"):
        yield (
            name,
            Reader(
                make=_table,
                file=f"my/{name}",
                read=_source(f"my/{name}"),
                takes=RECOGNISED_TEXT
                if name == "lines.jsonl"
                else RECOGNISED_TEXT | {"first bytes"},  # names of columns, here not asked for
            ),
        )
    columns = ("sentence1",)
    yield "texts in parquet", Reader(make=_table, file="my/pairs.parquet", read=_texts("my/pairs.parquet", *columns), takes=flips)
    for name in ("commas.csv", "tabs.tsv", "lines.jsonl"):
        yield f"texts in {name}", Reader(make=_table, file=f"my/{name}", read=_texts(f"my/{name}", *columns), takes=RECOGNISED_TEXT)
    takes = frozenset(PLAIN_TEXT)
    plain_takes = RECOGNISED_TEXT | {"first bytes"}  # letters of the West; `Texts.notes` says so
    yield "texts in plain.txt", Reader(make=_table, file="my/plain.txt", read=_texts("my/plain.txt"), takes=plain_takes)
    for name in ("Twitter_URL_Corpus_test.txt", "test.data", "sem_text_rel_ranked.csv"):
        yield name, Reader(make=_releases, file=f"my/{name}", read=_source(f"my/{name}"), takes=takes)
    for name in ("text_tokenized.txt", "dev.txt"):
        yield f"askubuntu/{name}", Reader(make=_releases, file=f"askubuntu/{name}", read=_source("askubuntu"), takes=takes)
    yield "scidocs", Reader(make=_releases, file="scidocs/data.json", read=_source("scidocs"), takes=takes)
    for name in ("sentences.arrow", "rows.arrow"):
        yield f"corpus {name}", Reader(make=_corpus, file=name, read=_read_corpus, takes=flips | {"first bytes"})
    for name in ("pos.npy", "bow_indptr.npy", "bow_indices.npy", "bow_values.npy", "tags.json", "vocabulary.json"):
        yield f"targets {name}", Reader(make=_targets, file=name, read=_read_targets, takes=flips)
    for name in ("bank.json", "shards/00000.npy"):
        yield f"bank {name}", Reader(make=_bank, file=name, read=lambda folder: FileBank([folder]).rows(np.arange(3)), takes=flips)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        yield f"encoder {name}", Reader(make=_encoder, file=f"plain/{name}", read=_load("plain"), takes=flips)
        if name != "tokenizer.json":
            yield f"pinned {name}", Reader(make=_encoder, file=f"plain/{name}", read=_pinned("plain"), takes=flips)
    yield "encoder pytorch_model.bin", Reader(make=_encoder, file="old/pytorch_model.bin", read=_load("old"), takes=flips)
    for name in ("modules.json", "1_Pooling/config.json", "2_Dense/model.safetensors", "sentence_bert_config.json"):
        yield f"encoder {name}", Reader(make=_encoder, file=f"own/{name}", read=_load("own"), takes=flips)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        yield (
            f"paraphrases {name}",
            Reader(
                make=_writer,
                file=f"t5/{name}",
                read=lambda folder: paraphrase(["a man"], checkpoint=folder / "t5", max_tokens=4),
                takes=flips,
            ),
        )
    for name in ("relations.json", "relations.safetensors"):
        yield name, Reader(make=_relations, file=name, read=read_relations, takes=flips)
    yield "items", Reader(make=_artifact, file="items/stsb.parquet", read=_items, takes=flips)
    yield "spectrum", Reader(make=_artifact, file=SPECTRUM_FILE, read=_spectrum, takes=flips)
    yield "sample", Reader(make=_artifact, file=SAMPLE_FILE, read=_sample, takes=flips)
    yield (
        "history",
        Reader(
            make=_artifact,
            file="history.jsonl",
            read=lambda folder: read_json_lines(folder / "history.jsonl", expected="a curve"),
            takes=frozenset({"empty"}),
        ),
    )
    yield (
        "heads",
        Reader(make=_artifact, file="heads.safetensors", read=lambda folder: read_heads(folder / "heads.safetensors"), takes=flips),
    )
    for name in ("a.npy", "a.npy.json"):
        yield f"embeddings {name}", Reader(make=_embeddings, file=name, read=_read_embeddings, takes=flips)
    bytes_only = frozenset({*CERTAIN, *POSSIBLE} - {"folder", "loop", "dangling", "pipe", "zero device"})
    yield "nltk", Reader(make=_nltk, file="taggers/universal_tagset/en-ptb.map", read=_read_nltk, takes=bytes_only)


READERS = dict(_readers())


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Reader], Path]:
    """Folders that are whole, each made and read once: what is left to time is reading."""
    made: dict[object, Path] = {}
    seen: set[int] = set()

    def root(reader: Reader) -> Path:
        if reader.make not in made:
            made[reader.make] = tmp_path_factory.mktemp("root")
            reader.make(made[reader.make])
        if id(reader) not in seen:
            reader.read(made[reader.make])
            seen.add(id(reader))
        return made[reader.make]

    return root


@pytest.mark.in_turns
@pytest.mark.parametrize("damage", [*CERTAIN, *POSSIBLE])
@pytest.mark.parametrize("name", READERS)
def test_damage_is_reported_in_a_sentence(
    name: str, damage: str, roots: Callable[[Reader], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    reader = READERS[name]
    root = tmp_path / "root"
    shutil.copytree(roots(reader), root)
    path = root / reader.file
    {**CERTAIN, **POSSIBLE}[damage](path)
    error = _reported(lambda: reader.read(root))
    if error is None:
        assert damage in reader.takes, "damage was used as if nothing were wrong"
        return
    message = str(error)
    assert str(path) in message or str(path.parent) in message, message
    assert len(message) < 500 + len(str(root)) and len(message.splitlines()) == 1, message
    assert "Traceback" not in message


class _Endless(BaseException):
    """Reading did not end; not an Exception, which readers would take for damage."""


def _reported(read: Callable[[], object]) -> SentdistError | None:
    """The error that reading ends in; fails for any other exception, and for one that does not end."""

    def expired(number: int, frame: object) -> None:
        raise _Endless

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(60)
    began = time.process_time()
    try:
        read()
    except SentdistError as error:
        return error
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        assert time.process_time() - began < LONGEST_S
    return None


@pytest.mark.parametrize("damage", ["none", "empty", "half", "first bytes", "folder", "loop", "pipe", "zero device"])
@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("r.yaml", ("plan", "r.yaml")),
        ("plain/model.safetensors", ("encode", "plain", "my/plain.txt", "--out", "out.npy")),
        ("plain/tokenizer.json", ("similarity", "plain", "a man", "a dog")),
        ("my/lines.jsonl", ("encode", "plain", "my/lines.jsonl", "--column", "sentence1", "--out", "out.npy")),
        ("found.npy", ("search", "plain", "a man", "--embeddings", "found.npy")),
    ],
)
def test_commands_end_with_2_and_without_a_traceback(
    file: str, command: tuple[str, ...], damage: str, whole_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    shutil.copytree(whole_folder, root)
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if damage != "none":
        {**CERTAIN, **POSSIBLE}[damage](root / file)
    answer = CliRunner().invoke(app, [*command, *(("--data", ".", "--store", "store") if command[0] == "plan" else ())])
    if damage == "none":
        assert answer.exit_code == 0, answer.output
        return
    assert answer.exit_code == 2, answer.output
    assert len(answer.stderr.strip().splitlines()) == 1 and "Traceback" not in answer.output
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache").rglob("*tracebacks*"))


@pytest.fixture(scope="module")
def whole_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    for make in (_table, _encoder, _embeddings):
        make(folder)
    np.save(folder / "found.npy", np.ones((3, WIDTH), dtype=np.float32))
    values = small_values(
        corpus={"source": "my/pairs", "columns": ["sentence1", "sentence2"], "split": None},
        encoder={"checkpoint": "./plain"},
        training={"batch_size": 2, "max_length": 20},
        selection=None,
    )
    del values["evaluation"]  # it comes last: half a recipe has none
    (folder / "r.yaml").write_text(recipe_text(values | {"evaluation": {"tasks": ["scenes-sts"]}}))
    return folder
