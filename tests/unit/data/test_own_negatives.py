"""Columns of negatives in a person's own table, by whatever name."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.own.recognise import OwnFileOptions, recognise
from sentdist.data.own.rows import read_rows
from sentdist.data.own.split import DEV, TEST, TRAIN
from sentdist.errors import DataError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("names", "shape", "num_columns"),
    [
        ("anchor,positive,negative_1", "triplets", 3),
        ("anchor,positive,neg_0,neg_1,neg_2", "triplets", 5),
        ("question,answer,Hard Negative 1,Hard Negative 2", "triplets", 4),
        ("question,answer,wrong_answer", "triplets", 3),
        ("titel,teaser,negative_1,negative_2", "triplets", 4),
        ("sent0,sent1,sent2", "triplets", 3),
        ("question,answer,hardware", "faq", 2),
    ],
)
def test_negatives_are_known_by_any_of_their_names(names: str, shape: str, num_columns: int, tmp_path: Path) -> None:
    """`negative_1` beside an anchor and a positive was dropped, and pairs were trained; of several the first was read alone."""
    path, columns = tmp_path / "own.csv", names.split(",")
    path.write_text(names + "\n" + "".join(",".join(f"the text {place} of {n}" for place in range(len(columns))) + "\n" for n in range(60)))
    found = recognise("own.csv", path, OwnFileOptions(near=None))
    assert found.file.shape == shape and found.file.columns == tuple(columns[:num_columns])
    assert sum(found.sizes) == 60 * max(1, num_columns - 2)
    assert ("60 rows with several read as a row for each positive and negative" in found.notes[0]) == (num_columns > 3)


def test_columns_that_are_named_are_read_alone(tmp_path: Path) -> None:
    path, names = tmp_path / "own.csv", ("anchor", "positive", "negative_1", "negative_2")
    path.write_text(",".join(names) + "\n" + "".join(f"how is {n},so {n},not {n},never {n}\n" for n in range(60)))
    one = recognise("own.csv", path, OwnFileOptions(near=None, columns=names[:3]))
    assert sum(one.sizes) == 60 and "to read all negatives, name their columns behind negative_1" in one.notes[0]
    assert recognise("own.csv", path, OwnFileOptions(near=None, columns=names)).file.columns == names
    pairs = recognise("own.csv", path, OwnFileOptions(near=None, shape="pairs"))
    assert pairs.file.columns == names[:2]


@pytest.mark.parametrize("cell", ["yes,no", "3,1"])
def test_labels_that_are_called_as_negatives_are_none(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("question,answer,hard\n" + "".join(f"how is {n},so {n},{cell.split(',')[n % 2]}\n" for n in range(60)))
    assert recognise("own.csv", path, OwnFileOptions(near=None)).file.shape == "faq"


def write_lists(path: Path) -> None:
    """As FlagEmbedding writes them: 0 to 3 negatives, 1 or 2 positives."""
    rows = [
        {"query": f"how is {n}", "pos": [f"so {n}", f"thus {n}"][: 1 + n % 2], "neg": [f"no {n}", f"not {n}", f"never {n}", " "][: n % 4]}
        for n in range(60)
    ]
    path.write_text("".join(json.dumps(row | {"pos_scores": [1.0], "neg_scores": [0.5]}) + "\n" for row in rows))


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_lists_of_positives_and_negatives_are_read_whole(suffix: str, tmp_path: Path) -> None:
    """A list of negatives was to be written out by hand."""
    path = tmp_path / f"own{suffix}"
    write_lists(tmp_path / "lines.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    match suffix:
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        case ".json":
            path.write_text(json.dumps(rows))
        case _:
            write_lists(path)
    found = recognise(path.name, path, OwnFileOptions(near=None))
    assert (found.file.shape, found.file.columns) == ("triplets", ("query", "pos", "neg"))
    assert "15 rows without a text left out" in found.notes[0]
    read = {
        tuple(row.values())
        for side in (TRAIN, DEV, TEST)
        for row in read_rows(path.name, path, found.file, side, revision=found.revision).to_pylist()
    }
    assert {row[1:] for row in read if row[0] == "how is 3"} == {("so 3", "no 3"), ("thus 3", "not 3"), ("so 3", "never 3")}
    assert {row[1:] for row in read if row[0] == "how is 1"} == {("so 1", "no 1"), ("thus 1", "no 1")}
    assert found.num_apart == len(
        {row["sent0"] for row in read_rows(path.name, path, found.file, TRAIN, revision=found.revision).to_pylist()}
    )
    assert len(read) == sum(found.sizes) == 15 * (2 + 2 + 3)


def test_negatives_of_one_anchor_stay_on_one_side(tmp_path: Path) -> None:
    write_lists(path := tmp_path / "own.jsonl")
    found = recognise(path.name, path, OwnFileOptions(near=None))
    anchors = [
        set(read_rows(path.name, path, found.file, side, revision=found.revision)["sent0"].to_pylist()) for side in (TRAIN, DEV, TEST)
    ]
    assert all(anchors) and not anchors[0] & anchors[1] and not anchors[0] & anchors[2] and not anchors[1] & anchors[2]


def test_lists_that_no_name_calls_positives_or_negatives_are_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text("".join(f'{{"set": ["how is {n}", "so {n}"]}}\n' for n in range(60)))
    with pytest.raises(DataError, match="texts in lists, under set"):
        recognise(path.name, path, OwnFileOptions())
    path.write_text("".join(f'{{"anchor": "how is {n}", "positive": "so {n}", "negatives": []}}\n' for n in range(60)))
    assert recognise(path.name, path, OwnFileOptions(near=None)).file.shape == "pairs"


@pytest.mark.parametrize(
    ("anchor", "positives", "negatives", "further"),
    [
        ("query", "positive_passages", "negative_passages", {"query_id": "q"}),
        ("question", "positive_ctxs", "hard_negative_ctxs", {"answers": ["x"], "negative_ctxs": []}),
    ],
    ids=["Tevatron", "DPR"],
)
def test_passages_beside_a_query_are_read_with_their_titles(
    anchor: str, positives: str, negatives: str, further: dict[str, object], tmp_path: Path
) -> None:
    """They were refused: "lists of objects", and a row for each pair was to be written."""
    path = tmp_path / "train.json"
    passage = {"docid": "1", "title": " Cities "}
    rows = [
        {anchor: f"where is {n}", positives: [{"text": f"{n} lies here", **passage}], **further}
        | {negatives: [{"text": f"not {n}", "title": ""}, {"text": f"nor {n}", "title": None}]}
        for n in range(60)
    ]
    path.write_text(json.dumps(rows))
    found = recognise(path.name, path, OwnFileOptions(near=None))
    assert found.file.shape == "triplets" and found.file.columns[:2] == (anchor, positives) and negatives in found.file.columns
    read = [read_rows(path.name, path, found.file, side, revision=found.revision).to_pylist() for side in (TRAIN, DEV, TEST)]
    texts = {tuple(row.values()) for side in read for row in side}
    assert texts == {(f"where is {n}", f"Cities {n} lies here", f"{word} {n}") for n in range(60) for word in ("not", "nor")}


def test_what_is_held_out_counts_rows_of_the_file(tmp_path: Path) -> None:
    """Of rows with ten negatives each, a cap of 20 held out two questions for test, and two for dev."""
    path = tmp_path / "own.jsonl"
    rows = [{"query": f"how is {n}", "pos": [f"so {n}"], "neg": [f"not {n} but {m}" for m in range(10)]} for n in range(300)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = recognise("own.jsonl", path, OwnFileOptions(near=None, most=20))
    assert found.sizes == (2600, 200, 200)
