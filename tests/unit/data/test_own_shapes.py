"""Shapes that other programs write: TREC's judgements, grades below 0, TSV by pandas; repetitions reported all at once."""

from __future__ import annotations

import csv
import gzip
import json
import math
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from sentdist.cli.train import by_commas
from sentdist.data.checked_rows import read_candidates, read_labelled, read_pairs
from sentdist.data.own.columns import named, scale_of
from sentdist.data.own.recognise import OwnFileOptions, recognise
from sentdist.data.own.shapes import layout_of
from sentdist.data.retrieval import read_retrieval
from sentdist.data.sources.files import read_file
from sentdist.data.sources.hub import read_source
from sentdist.errors import DataError
from sentdist.stages.planning.resolve import FileResolver
from tests.support.tasks_data import write_table


def bank(root: Path, judgements: str) -> Path:
    write_table(root, "my/faq_docs", [{"doc_id": f"d{n}", "text": f"answer {n}"} for n in range(3)])
    write_table(root, "my/faq_queries", [{"query_id": f"q{n}", "query": f"question {n}"} for n in range(2)])
    (root / "my/faq_qrels.txt").write_text(judgements)
    return root


@pytest.mark.parametrize(
    ("cells", "scale"),
    [
        ([0.2, 0.9], (0.0, 1.0)),
        ([-0.5, 0.9], (-1.0, 1.0)),
        ([1, 4.5], (1.0, 5.0)),
        ([0, 4.5], (0.0, 5.0)),
        (["-3", "300"], (-3.0, 300.0)),
        (["entailment", "neutral"], (0.0, 2.0)),
    ],
)
def test_scores_are_on_the_narrowest_usual_scale_that_holds_them(cells: list[object], scale: tuple[float, float]) -> None:
    assert scale_of("a.csv", "score", cells) == scale


def test_judgements_as_trec_writes_them_with_grades_below_0(tmp_path: Path) -> None:
    found = read_retrieval("my/faq", data_root=bank(tmp_path, "q0 0 d1 2\nq0 0 d2 -1\n\nq1\t0\td0\t1\n"))
    assert found.qrels == {"q0": {"d1": 2, "d2": 0}, "q1": {"d0": 1}}


def test_a_line_of_another_length_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 2 has 3 fields"):
        read_retrieval("my/faq", data_root=bank(tmp_path, "q0 0 d1 2\nq0 d2 1\n"))


def test_all_repetitions_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"query q0 and document d1 judged twice, and 1 pair more.*Remove row 2, row 4\."):
        read_retrieval("my/faq", data_root=bank(tmp_path, "q0 0 d1 2\nq0 0 d1 1\nq1 0 d0 1\nq1 0 d0 1\n"))
    row = {"query_id": "q", "query": "a", "document_id": "d", "document": "b", "relevance": 1}
    write_table(tmp_path, "my/few", [row, row, {**row, "document_id": "e"}, {**row, "document_id": "e"}])
    with pytest.raises(DataError, match=r"candidate d of query q twice, and 1 more.*Remove row 2, row 4\."):
        read_candidates("my/few", data_root=tmp_path)


@pytest.mark.parametrize(("part", "what"), [("docs", "document id d0"), ("queries", "query id q0")])
def test_all_repeated_ids_are_reported_at_once(tmp_path: Path, part: str, what: str) -> None:
    root = bank(tmp_path, "q0 0 d1 2\n")
    (path,) = root.glob(f"my/faq_{part}.*")
    rows = pq.read_table(path).to_pylist()
    write_table(tmp_path, f"my/faq_{part}", [*rows, rows[0], rows[0], rows[1]])
    last = len(rows)
    with pytest.raises(DataError, match=rf"{what} again, and 2 more.*Remove row {last + 1}, row {last + 2}, row {last + 3}\."):
        read_retrieval("my/faq", data_root=root)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('"a ""b"""', 'a "b"'),
        ('"""b"" a"', '"b" a'),
        ('"a"', '"a"'),
        ('he said "a"', 'he said "a"'),
        ('"a" and "b"', '"a" and "b"'),
        ("plain", "plain"),
    ],
)
def test_fields_that_pandas_has_quoted_in_a_tsv(tmp_path: Path, written: str, meant: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(f"one\ttwo\n{written}\tother\n")
    assert read_file("pairs", path)["one"].to_pylist() == [meant], json.dumps(written)


def test_tabs_and_line_breaks_that_pandas_has_quoted_in_a_tsv(tmp_path: Path) -> None:
    rows = [("one\ttab", 'said "a"'), ("plain", "two\nlines"), ("last", '"')]
    path = tmp_path / "pairs.tsv"
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([("one", "two"), *rows])
    assert [tuple(row.values()) for row in read_file("pairs", path).to_pylist()] == rows


@pytest.mark.parametrize("line", ['"he said\tmore\tother', '"a" and\t"b"\tc', 'a\tb\t"c', '"a\nb\t"c"'])
def test_marks_that_are_letters_do_not_save_a_tsv_with_a_row_of_another_length(tmp_path: Path, line: str) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(f'one\ttwo\nx\ty\n{line}\n"z\tw\n')
    with pytest.raises(DataError, match=r"fields|field"):
        read_file("pairs", path)


def test_a_source_is_retrieval_by_its_files(tmp_path: Path) -> None:
    resolver = FileResolver(data_root=bank(tmp_path, "q0 0 d1 2\n"))
    write_table(tmp_path, "my/rows", [{"sent0": "a", "sent1": "b"}])
    assert resolver.is_retrieval("my/faq") and not resolver.is_retrieval("my/rows") and not resolver.is_retrieval("hub:owner/name")
    assert resolver.source("my/faq", split=None, revision=None, columns=(), where="corpus.source").num_rows


def test_json_lists_and_packed_lines_are_tables(tmp_path: Path) -> None:
    rows = [{"sent0": "a b", "sent1": "c", "split": "train"}, {"sent0": "d", "sent1": "é", "split": "dev"}]
    (tmp_path / "one.json").write_text(json.dumps(rows))
    with gzip.open(tmp_path / "two.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(json.dumps(row) for row in rows))
    resolver = FileResolver(data_root=tmp_path)
    for name in ("one", "one.json", "two", "two.jsonl.gz"):
        assert resolver.source(name, split="dev", revision=None, columns=("sent0", "sent1"), where="corpus.source").num_rows == 1
        found = read_source(name, split="dev", data_root=tmp_path, columns=("sent0", "sent1"))
        assert found.to_pylist() == [{"sent0": "d", "sent1": "é"}]


def test_a_list_has_the_columns_of_all_its_objects(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps([{"sent0": "a"}, {"sent1": "b", "sent0": "c"}, {"score": 1, "sent0": "d"}]))
    found = read_source("one", data_root=tmp_path)
    assert found.column_names == ["sent0", "sent1", "score"] and found["sent1"].to_pylist() == [None, "b", None]


@pytest.mark.parametrize("content", ['{"a": 1}', "[1, 2]", "[", ""])
def test_other_json_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "one.json").write_text(content)
    with pytest.raises(DataError, match="one"):
        read_source("one", data_root=tmp_path)


@pytest.mark.parametrize("begin", ["\ufeff", "\n", "\ufeff\r\n\n"])
@pytest.mark.parametrize("separator", [",", "\t"])
def test_the_first_column_is_text_behind_a_mark_or_empty_lines(tmp_path: Path, begin: str, separator: str) -> None:
    suffix = "tsv" if separator == "\t" else "csv"
    (tmp_path / f"texts.{suffix}").write_text(begin + "label,text\n01,a\n1,b\n".replace(",", separator), encoding="utf-8", newline="")
    assert read_labelled("texts", data_root=tmp_path).labels == ("01", "1")


def test_judgements_behind_a_mark_are_those_of_the_queries(tmp_path: Path) -> None:
    found = read_retrieval("my/faq", data_root=bank(tmp_path, "\ufeffq0 0 d1 2\nq1 0 d0 1\n"))
    assert found.qrels == {"q0": {"d1": 2}, "q1": {"d0": 1}}


def test_a_cell_of_a_task_may_be_long(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(f"sentence1,sentence2,score\na,{'b' * 3_000_000},1\nc,d,2\n")
    assert read_pairs("s", data_root=tmp_path).num_pairs == 2


@pytest.mark.parametrize("score", ['"4,5"', "45%", "inf", "-inf", "nan"])
def test_a_score_on_any_scale_is_a_finite_number(tmp_path: Path, score: str) -> None:
    (tmp_path / "s.csv").write_text(f"sentence1,sentence2,score\na,b,1\nc,d,{score}\n")
    with pytest.raises(DataError, match=r"in row 2; expected a finite number, with a point"):
        read_pairs("s", data_root=tmp_path, score_range=(-math.inf, math.inf))


@pytest.mark.parametrize("columns", [("score", "sentence1", "sentence2"), ("sentence1", "score")])
def test_numbers_are_no_texts_where_columns_are_named_in_another_order(columns: tuple[str, ...]) -> None:
    cells = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "score": ["4.2", "0,5"]}
    table = pa.table({name: pa.array(column, pa.large_string()) for name, column in cells.items()})
    with pytest.raises(DataError, match=r"my\.csv, score: found numbers; expected texts, in place"):
        layout_of("my.csv", table, shape=None, columns=columns, group=None)


def test_the_columns_of_an_example_are_those_with_the_longest_texts() -> None:
    cells = {
        "article": ["A-1", "B-7"],
        "title": ["A red lamp", "A blue chair"],
        "shelf": ["north", "south"],
        "text": ["It shines at night.", "It has four legs."],
    }
    table = pa.table({name: pa.array(column, pa.large_string()) for name, column in cells.items()})
    with pytest.raises(DataError, match=r"columns article, title, shelf, text; .* --columns title,text \(tune\)"):
        layout_of("my.csv", table, shape=None, columns=None, group=None)


CODES = {
    "Datum": lambda n: f"{n % 28 + 1:02d}.03.2024",
    "Ticket": lambda n: f"T-{n:05d}",
    "Post": lambda n: f"kunde{n}@firma.de",
    "Seite": lambda n: f"https://firma.de/faq/{n}",
    "Betrag": lambda n: f"{n},50 €",
    "Kunde": lambda n: str(20_000 + 7 * n),
}


@pytest.mark.parametrize("column", CODES)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_dates_addresses_and_keys_are_neither_texts_nor_scores(column: str, place: int) -> None:
    """A date beside question and answer was the negative of each, the number of a ticket the anchor, that of a customer the score."""
    cells = {"Anfrage": [f"Wie geht das {n}?" for n in range(60)], "Loesung": [f"Auf Seite {n}." for n in range(60)]}
    names = [*[*cells][:place], column, *[*cells][place:]]
    cells[column] = [CODES[column](n) for n in range(60)]
    table = pa.table({name: pa.array(cells[name], pa.large_string()) for name in names})
    found = layout_of("my.csv", table, shape=None, columns=None, group=None)
    assert (found.shape, found.columns) == ("pairs", ("Anfrage", "Loesung"))
    if column != "Kunde":
        assert layout_of("my.csv", table, shape="triplets", columns=None, group=None).shape == "triplets", "if somebody says so"
        with pytest.raises(DataError, match=f"{column} with '.*' beside Anfrage; expected two columns of texts"):
            layout_of("my.csv", table.drop_columns(["Loesung"]), shape=None, columns=None, group=None)


def test_a_remark_on_some_rows_is_no_negative() -> None:
    """Nine of ten rows were left out, for they had no negative."""
    cells = {
        "a": [f"who {n}" for n in range(60)],
        "b": [f"he {n}" for n in range(60)],
        "c": [f"to be checked {n}" * (n % 10 == 0) for n in range(60)],
    }
    table = pa.table({name: pa.array(column, pa.large_string()) for name, column in cells.items()})
    assert layout_of("my.csv", table, shape=None, columns=None, group=None).columns == ("a", "b")
    assert layout_of("my.csv", table, shape="triplets", columns=None, group=None).columns == ("a", "b", "c")


def test_texts_without_blanks_between_words_are_no_keys() -> None:
    cells = {
        "a": [f"第{n}章讲了什么？" for n in range(60)],
        "b": [f"答案在{n}页。" for n in range(60)],
        "c": [f"不在{n}页。" for n in range(60)],
    }
    table = pa.table({name: pa.array(column, pa.large_string()) for name, column in cells.items()})
    with pytest.raises(DataError, match=r"three columns of texts, a, b, c;"):
        layout_of("my.csv", table, shape=None, columns=None, group=None)
    table = table.rename_columns(["a", "b", "no_negatives"])
    assert layout_of("my.csv", table, shape=None, columns=None, group=None).columns == ("a", "b", "no_negatives")


@pytest.mark.parametrize("names", [("en", "de", "fr"), ("lang", "Anfrage", "Loesung"), ("1", "2", "3"), ("Titel", "Teaser", "Inhalt")])
def test_three_texts_of_unknown_names_are_asked_about(names: tuple[str, str, str]) -> None:
    """Translations were each other's negatives."""
    table = pa.table({name: pa.array([f"{name} {n} of some words" for n in range(60)], pa.large_string()) for name in names})
    said = rf"three columns of texts, {', '.join(names)}; .*--columns {','.join(names)} \(tune\), or --set 'corpus.columns=\[{', '.join(names)}\]'"
    with pytest.raises(DataError, match=said):
        layout_of("my.csv", table, shape=None, columns=None, group=None)
    for asked in ({"shape": "triplets", "columns": None}, {"shape": None, "columns": names}):
        found = layout_of("my.csv", table, group=None, **asked)  # type: ignore[arg-type]
        assert (found.shape, found.columns) == ("triplets", names)
    assert layout_of("my.csv", table, shape=None, columns=names[1:], group=None).shape == "pairs"


@pytest.mark.parametrize("third", ["negativ", "Hard negative 1", "wrong answer"])
def test_a_name_says_that_the_third_text_is_a_negative(third: str) -> None:
    table = pa.table({name: pa.array([f"{name} {n} words" for n in range(60)], pa.large_string()) for name in ("eins", "zwei", third)})
    found = layout_of("my.csv", table, shape=None, columns=None, group=None)
    assert (found.shape, found.columns) == ("triplets", ("eins", "zwei", third))


def test_numbers_on_no_usual_scale_are_asked_about() -> None:
    """How often an answer was read was taken for how alike question and answer are."""
    cells = {
        "one": [f"who {n}" for n in range(60)],
        "other": [f"he {n}" for n in range(60)],
        "Klicks": [str(n % 9 * 130) for n in range(60)],
    }
    table = pa.table({name: pa.array(column, pa.large_string()) for name, column in cells.items()})
    with pytest.raises(
        DataError, match=r"Klicks with numbers from 0 to 1040, no usual scores, beside one, other; .* --columns one,other,Klicks"
    ):
        layout_of("my.csv", table, shape=None, columns=None, group=None)
    for asked in ({"shape": "graded", "columns": None}, {"shape": None, "columns": ("one", "other", "Klicks")}):
        assert layout_of("my.csv", table, group=None, **asked).shape == "graded"  # type: ignore[arg-type]


LISTS: list[dict[str, object]] = [
    {"query": "who asks?", "positive": ["he asks", "she asks"], "negative": ["nobody"], "split": "test"},
    {"query": "who sleeps?", "positive": ["a cat"], "negative": [], "split": "test"},
    {"query": "who sings?", "positive": [], "negative": ["a bird"], "split": "test"},
    {"query": "who asks?", "positive": "they ask", "negative": None, "split": "dev"},
]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "json", "parquet"])
def test_mteb_s_lists_of_candidates_are_rows_of_candidates(tmp_path: Path, suffix: str) -> None:
    rows = [row for row in LISTS if row["split"] == "test"]
    if suffix == "parquet":
        write_table(tmp_path, "my/few", rows)
    else:
        path = tmp_path / f"my/few.{suffix}"
        path.parent.mkdir()
        content = json.dumps(rows) if suffix == "json" else "\n".join(map(json.dumps, rows))
        path.write_bytes(gzip.compress(content.encode()) if suffix.endswith("gz") else content.encode())
    resolver = FileResolver(data_root=tmp_path)
    columns = ("query", "query_id", "relevance", "document")
    assert resolver.source("my/few", split="test", revision=None, columns=columns, where="task my/few").num_rows == 3
    found = read_candidates("my/few", split="test", data_root=tmp_path)
    assert found.queries == ("who asks?",) * 3 + ("who sleeps?",) and found.num_unanswerable == 1
    assert found.documents == ("nobody", "he asks", "she asks", "a cat") and found.relevance == (0, 1, 1, 1)
    assert len(set(zip(found.query_ids, found.document_ids, strict=True))) == 4 and len(set(found.query_ids)) == 2


def test_a_single_candidate_needs_no_list(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("query,positive,negative\nwho asks?,they ask,a cat\nwho sleeps?,a cat,\n")
    found = read_candidates("few", data_root=tmp_path)
    assert found.documents == ("a cat", "they ask", "a cat") and found.relevance == (0, 1, 1)


def test_candidates_that_are_no_texts_are_named(tmp_path: Path) -> None:
    (tmp_path / "few.json").write_text(json.dumps([{"query": "a", "positive": ["b"], "negative": [{"text": "c"}]}]))
    with pytest.raises(DataError, match=r"row 1.*negative"):
        read_candidates("few", data_root=tmp_path)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"messages": [{"role": "user", "content": "how"}, {"role": "assistant", "content": "so"}]}', "role, content, as chats have"),
        ('{"id": 7, "conversations": [{"from": "human", "value": "how"}]}', "conversations with lists .* from, value, as chats have"),
        ('{"set": ["how", "so"]}', "texts in lists, under set; expected texts in columns"),
        ('{"texts": ["how", "so"], "label": 1.0}', "texts in lists, under texts; expected texts in columns"),
        ('[{"how": "so"}]', "expected a JSON object. A list of objects is called .json"),
        ('{"data": [{"question": "how", "answer": "so"}]}', r"a line of its own, as `jq -c '.data\[\]'` does"),
    ],
)
def test_lists_of_objects_are_reported_as_what_they_are(row: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(f"{row}\n")
    with pytest.raises(DataError, match=said):
        recognise("own.jsonl", path, OwnFileOptions())


def test_a_sheet_of_judgements_is_graded_pairs(tmp_path: Path) -> None:
    """Excel's: `Nr.` was the end of a sentence, and the letters of who has judged were a text."""
    path = tmp_path / "own.csv"
    rows = [f"{n + 1};Die Tür {n} ist offen.;Jemand öffnet Tür {n}.;{n * 7 % 51 / 10};{['AK', 'MS'][n % 2]};{'' if n % 9 else 'unklar'}"
            for n in range(80)]  # fmt: skip
    path.write_bytes("\n".join(["Nr.;Satz 1;Satz 2;Ähnlichkeit (0-5);Annotator;Kommentar", *rows]).replace(".", ",").encode("cp1252"))
    path.write_bytes(path.read_bytes().replace(b"Nr,", b"Nr."))
    found = recognise("own.csv", path, OwnFileOptions(near=None))
    assert (found.file.shape, found.file.columns) == ("graded", ("Satz 1", "Satz 2", "Ähnlichkeit (0-5)"))
    assert "Nr., Annotator, Kommentar not read" in found.notes[0] and (found.file.low, found.file.high) == (0.0, 5.0)


def test_the_mean_of_several_judgements_is_what_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    rows = [f"one {n};other {n};{n % 6};{(n * 5 + 1) % 6};{(n % 6 + (n * 5 + 1) % 6) / 2}\n" for n in range(60)]
    path.write_text("Satz A;Satz B;Annotator 1;Annotator 2;Mittelwert\n" + "".join(rows))
    with pytest.raises(DataError, match=r"Annotator 1, Annotator 2, Mittelwert beside .* --columns 'Satz A,Satz B,Mittelwert' \(tune\)"):
        recognise("own.csv", path, OwnFileOptions(near=None))


def test_names_of_columns_are_reported_as_a_shell_takes_them(tmp_path: Path) -> None:
    names = ["Title", "Body (HTML)", 'a "b", c', "d'e"]
    said = named(names)
    tune, recipe = shlex.split(said.replace(" (tune), or", "").replace(" (a recipe)", ""))[1::2]
    assert by_commas(tune) == names
    assert recipe.startswith("corpus.columns=[Title, Body (HTML), ") and yaml.safe_load(recipe.partition("=")[2]) == names
    assert named(["a", "b"]) == "--columns a,b (tune), or --set 'corpus.columns=[a, b]' (a recipe)"
    assert yaml.safe_load(shlex.split(named(["x, y", "10%", "Größe"]).split(" --set ")[1])[0].partition("=")[2]) == ["x, y", "10%", "Größe"]
