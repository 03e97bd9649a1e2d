"""Files as newcomers have them (tests/unit/data/files, and packed and binary ones made here): how each is read, or what its error says."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import zipfile
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.corpora.own_rows import file_rows
from sentdist.data.columns import Named, layout_of
from sentdist.data.tables import find_table
from sentdist.data.texts import open_texts
from sentdist.errors import DataError

FILES = Path(__file__).with_name("files")
FAQ = pa.table({"question": ["Where?", "Who?", "When?"], "answer": ["Here.", "She.", "Now."], "views": [3, 4, 5]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed files beside binary ones."""
    folder = tmp_path_factory.mktemp("files")
    shutil.copytree(FILES, folder, dirs_exist_ok=True)
    pq.write_table(FAQ, folder / "faq.parquet")
    pq.write_table(FAQ.set_column(0, "question", FAQ["question"].dictionary_encode()), folder / "dictionary.parquet")
    with pa.OSFile(str(folder / "faq.arrow"), "wb") as sink, pa.ipc.new_stream(sink, FAQ.schema) as writer:
        writer.write_table(FAQ)
    lines, table = (folder / "triplets.jsonl").read_bytes(), (folder / "graded.tsv").read_bytes()
    (folder / "triplets.jsonl.gz").write_bytes(gzip.compress(lines))
    (folder / "triplets.jsonl.bz2").write_bytes(bz2.compress(lines))
    (folder / "graded.tsv.xz").write_bytes(lzma.compress(table))
    with pa.CompressedOutputStream(str(folder / "graded.tsv.zst"), "zstd") as packed:
        packed.write(table)
    for name, inside in (("graded.tsv.zip", ["graded.tsv"]), ("two.csv.zip", ["a.csv", "b.csv"])):
        with zipfile.ZipFile(folder / name, "w") as archive:
            for member in inside:
                archive.writestr(member, table)
    (folder / "random.csv").write_bytes(bytes(range(256)) * 9)
    (folder / "cut.parquet").write_bytes((folder / "faq.parquet").read_bytes()[:-20])
    (folder / "faq.xlsx").write_bytes(b"PK\x03\x04")
    rows = {name: datasets.Dataset(FAQ.slice(first, 2)) for first, name in enumerate(("train", "validation"))}
    datasets.DatasetDict(rows).save_to_disk(folder / "saved")
    return folder


READ: list[tuple[str, Named | None, str, str, int, object]] = [
    # file, --columns, shape, columns, distinct rows, the first row
    ("faq.csv", None, "pairs", "question answer", 3, ("How do I reset my router?", "Hold the button, then wait.")),
    ("faq_semicolon.csv", None, "pairs", "Frage Antwort", 2, ("Wo ist meine Rechnung?", "Unter Konto, dann Belege.")),
    ("faq_bom.csv", None, "pairs", "Question Answer", 2, ("Where is it?", "Here.")),
    ("faq_utf16.csv", None, "pairs", "question answer", 2, ("Wo ist die Tür?", "Dort.")),
    ("faq_spaces.csv", None, "pairs", "Question Answer", 2, ("Where is it?", "Here.")),
    ("faq_renamed.csv", {"anchor": "customer text", "positive": "staff text", "group": "ticket"}, "pairs", "customer text staff text", 2,
     ("It is broken.", "Sorry for that.")),
    ("faq_nulls.csv", None, "pairs", "question answer", 2, ("Who?", "She.")),
    ("pairs_numbered_rows.csv", None, "pairs", "sentence1 sentence2", 2, ("A man eats.", "Someone eats.")),
    ("pairs.tsv", None, "pairs", "text_a text_b", 2, ('"Stop" he said.', 'He said "stop".')),
    ("pairs_pandas.tsv", None, "pairs", "sentence1 sentence2", 2, ('He said "no" twice.', "Twice he refused.")),
    ("pairs_bar.csv", None, "pairs", "Query Document", 2, ("red tent", "Our tent, red and light.")),
    ("duplicates.csv", None, "graded", "question1 question2 is_duplicate", 3, 1.0),
    ("graded.tsv", None, "graded", "sentence1 sentence2 score", 2, 4.5),
    ("graded.tsv", {"anchor": "sentence1", "positive": "sentence2"}, "pairs", "sentence1 sentence2", 2, ("A man eats.", "Someone eats.")),
    ("graded.tsv.xz", None, "graded", "sentence1 sentence2 score", 2, 4.5),
    ("graded.tsv.zst", None, "graded", "sentence1 sentence2 score", 2, 4.5),
    ("graded.tsv.zip", None, "graded", "sentence1 sentence2 score", 2, 4.5),
    ("graded_percent.csv", None, "graded", "Text 1 Text 2 Similarity", 2, 0.9),
    ("graded_comma.csv", None, "graded", "sentence1 sentence2 score", 2, 0.8),
    ("nli.jsonl", None, "graded", "premise hypothesis label", 3, 2.0),
    ("triplets.jsonl", None, "triplets", "anchor positive negative", 2, ("red tent", "A tent, red.", "A blue bag.")),
    ("triplets.jsonl.gz", None, "triplets", "anchor positive negative", 2, ("red tent", "A tent, red.", "A blue bag.")),
    ("triplets.jsonl.bz2", None, "triplets", "anchor positive negative", 2, ("red tent", "A tent, red.", "A blue bag.")),
    ("triplets_hard.csv", None, "triplets", "query pos hard_negative_1 hard_negative_2", 4, ("red tent", "A red tent.", "A red bag.")),
    ("simcse.csv", None, "triplets", "sent0 sent1 hard_neg", 2, ("A man eats.", "Someone eats.", "A man sleeps.")),
    ("positives.jsonl", None, "pairs", "query positives", 3, ("red tent", "A red tent.")),
    ("pos_neg_lists.jsonl", None, "triplets", "query pos neg", 4, ("red tent", "A red tent.", "A bag.")),
    ("arrays.jsonl", {"anchor": "1", "positive": "2"}, "pairs", "1 2", 2, ("red tent", "A red tent.")),
    ("nested.jsonl", {"anchor": "ticket.question"}, "pairs", "ticket.question answer", 2, ("How do I reset it?", "Hold the button.")),
    ("missing_keys.jsonl", None, "pairs", "question answer", 2, ("Where?", "Here.")),
    ("dates.jsonl", None, "pairs", "question answer", 2, ("2020-01-01", "A Wednesday.")),
    ("records.json", None, "pairs", "title body", 2, ("Tents", "How to pitch a tent.")),
    ("service.json", None, "pairs", "question answer", 2, ("Where?", "Here.")),
    ("splits.csv", None, "pairs", "query passage", 4, ("red tent", "A red tent.")),
    ("faq.parquet", None, "pairs", "question answer", 3, ("Where?", "Here.")),
    ("dictionary.parquet", None, "pairs", "question answer", 3, ("Where?", "Here.")),
    ("faq.arrow", None, "pairs", "question answer", 3, ("Where?", "Here.")),
    ("shards", None, "pairs", "question answer", 3, ("Where?", "Here.")),
    ("by_split", None, "pairs", "question answer", 3, ("When?", "Now.")),
    ("saved", None, "pairs", "question answer", 3, ("Where?", "Here.")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "named", "shape", "columns", "num_rows", "first"), READ, ids=[f"{one[0]}-{number}" for number, one in enumerate(READ)]
)
def test_files_are_read_by_the_names_of_their_columns(
    file: str, named: Named | None, shape: str, columns: str, num_rows: int, first: object, folder: Path
) -> None:
    table = find_table(file, folder / file).read()
    layout = layout_of(file, table, named)
    rows = file_rows(file, table, layout)
    assert (layout.shape, " ".join(layout.columns), len(rows.texts)) == (shape, columns, num_rows)
    assert first == (rows.grades[0] if shape == "graded" else rows.texts[0])
    assert rows.split is None or set(rows.split) >= {"train"}, "a column, or the names of files and folders"
    assert (rows.group is not None) == ("group" in (named or {}) or file == "faq_spaces.csv")


@pytest.mark.parametrize(
    ("file", "named", "words"),
    [
        ("faq_latin1.csv", None, "not UTF-8, perhaps cp125|--encoding cp125"),
        ("faq_no_header.csv", None, "columns Where is my invoice?|--columns anchor=|The first line of a CSV names its columns"),
        ("faq_renamed.csv", None, "columns customer text, staff text, ticket|--columns anchor=customer text,positive=staff text"),
        ("faq.csv", {"anchor": "question", "positive": "reply"}, "columns id, question, answer, url|question, reply. Name"),
        ("faq_repeated_names.csv", None, "several columns answer"),
        ("faq_ragged.csv", None, "Expected 2 columns, got 3"),
        ("graded_words.csv", None, "score|'high' in row 1"),
        ("nli_numbers.csv", None, "labels 0, 2|the words entailment"),
        ("arrays.jsonl", None, "columns 1, 2|--columns anchor=1,positive=2"),
        ("chat.jsonl", None, "columns messages"),
        ("broken.jsonl", None, "broken.jsonl|line"),
        ("columns.json", None, "neither a list of objects"),
        ("labels.csv", None, "columns text, label|--columns anchor=text"),
        ("one_column.csv", None, "columns sentence"),
        ("sentences.txt", None, "columns sentence"),
        ("header_only.csv", None, "no rows"),
        ("empty.csv", None, "no rows"),
        ("numbers.csv", None, "question|found numbers; expected texts"),
        ("mixed", None, "a folder with b.jsonl, a.csv|of one kind"),
        ("other_columns", None, "other_columns/b.csv|answer missing"),
        ("two.csv.zip", None, "2 files in it"),
        ("random.csv", None, "not UTF-8"),
        ("cut.parquet", None, "cut.parquet|cannot be read"),
        ("faq.xlsx", None, "suffix .xlsx|CSV UTF-8"),
        ("fag.csv", None, "no such file|Did you mean"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_error_that_says_what_to_type(file: str, named: Named | None, words: str, folder: Path) -> None:
    with pytest.raises(DataError) as raised:
        table = find_table(file, folder / file).read()
        file_rows(file, table, layout_of(file, table, named))
    assert all(word in str(raised.value) for word in words.split("|")), str(raised.value)


def test_an_encoding_that_is_named_is_used(folder: Path) -> None:
    table = find_table("faq", folder / "faq_latin1.csv", encoding="latin-1").read()
    assert table["question"][0].as_py() == "Wie kündige ich für München?"


@pytest.mark.parametrize(
    ("file", "column", "sentences"),
    [
        ("faq.csv", "question", ["How do I reset my router?", 'What is a "hotspot"?', "Where is my invoice?"]),
        ("one_column.csv", "", ["A man eats.", "A dog runs."]), ("sentences.txt", "", ["A man eats.", "A dog runs, and barks."]),
        ("notes", "", ["A man eats.", "A dog runs.", "It rains."]), ("faq.parquet", "answer", ["Here.", "She.", "Now."]),
        ("triplets.jsonl.gz", "positive", ["A tent, red.", "A bag."]), ("nested.jsonl", "ticket.subject", ["Router", "Bill"]),
    ],
)  # fmt: skip
def test_sentences_come_in_batches_of_equal_size(file: str, column: str, sentences: list[str], folder: Path) -> None:
    texts = open_texts(str(folder / file), columns=[column] if column else [])
    batches = [batch[texts.columns[0]] for batch in texts.batches(2)]
    assert [len(batch) for batch in batches[:-1]] == [2] * (len(batches) - 1) and [text for batch in batches for text in batch] == sentences
