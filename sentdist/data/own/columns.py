"""Classify the columns of a user file by their names and cells (texts, scores, labels, lists); word the errors for unclear columns."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sentdist.data.cells import number_in, row_name
from sentdist.data.graded import NLI_LABELS, NO_GOLD
from sentdist.errors import DataError, brief, counted, listed, one_line

if TYPE_CHECKING:
    import pyarrow as pa


SCALES = ((0.0, 1.0), (1.0, 5.0), (-1.0, 1.0), (0.0, 5.0), (1.0, 7.0), (1.0, 10.0), (0.0, 10.0), (0.0, 100.0))
YES_NO: Mapping[str, float] = {"no": 0.0, "n": 0.0, "nein": 0.0, "yes": 1.0, "y": 1.0, "ja": 1.0}
PERCENT, DECIMALS = "%", 12  # 7 % is 0.07, not 0.07000000000000001


def scale_of(name: str, column: str, cells: Sequence[object]) -> tuple[float, float]:
    """Return the scale of scores: the narrowest usual one that contains them, else their own range.

    Raises:
        DataError: all scores are equal.
    """
    numbers = [number for number in grades_of(name, column, cells) if not math.isnan(number)]
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 0.0)
    if low == high:
        found = f"{low:g} in every row" if numbers else "no score in any row"
        raise DataError(where=f"{name}, {column}", found=found, expected="scores that differ", remedy="Name the column of the scores.")
    if words_of(cells) is NLI_LABELS:
        return 0.0, 2.0
    usual = [scale for scale in SCALES if scale[0] <= low and high <= scale[1]]
    return min(usual, key=lambda scale: scale[1] - scale[0], default=(low, high))


def words_of(cells: Sequence[object]) -> Mapping[str, float]:
    """Return the number of each word if scores are words: NLI labels if at least one is, yes and no if all are; {} for numbers."""
    found = {cell.strip().casefold() if isinstance(cell, str) else None for cell in cells if not _is_nothing(cell)}
    if found & NLI_LABELS.keys():
        return NLI_LABELS
    return YES_NO if found and found <= YES_NO.keys() else {}


def grades_of(name: str, column: str, cells: Sequence[object], place: Callable[[int], str] = row_name) -> list[float]:
    """Return scores as floats, NaN for empty cells.

    Numbers have a decimal point or comma, and all or none are percentages; or cells are NLI labels; or all are yes or no.

    Args:
        place: returns the name of a row in messages.

    Raises:
        DataError: any other cell.
    """
    _check_percent(name, column, cells, place)
    words = words_of(cells)
    are_some = bool(words) or any(score_in(str(cell)) is not None for cell in cells)
    return [_grade(name, column, row, cell, place, words, are_some) for row, cell in enumerate(cells)]


def score_in(text: str) -> float | None:
    """Like `number_in`, but also reads 45% as 0.45."""
    plain = text.strip()
    if not plain.endswith(PERCENT):
        return number_in(plain)
    number = number_in(plain[:-1])
    return None if number is None else round(number / 100, DECIMALS)


def _check_percent(name: str, column: str, cells: Sequence[object], place: Callable[[int], str]) -> None:
    """Raise DataError for 45% next to 45: the latter may mean the same, or 100 times as much."""
    kinds: dict[bool, int] = {}
    for row, cell in enumerate(cells):
        if isinstance(cell, str) and score_in(cell) is not None:
            kinds.setdefault(cell.strip().endswith(PERCENT), row)
            if len(kinds) > 1:
                break
    if len(kinds) > 1:
        found = f"{brief(cells[kinds[True]])} in {place(kinds[True])} and {brief(cells[kinds[False]])} in {place(kinds[False])}"
        raise DataError(
            where=f"{name}, {column}", found=found, expected="all in percent, or none", remedy="Use one notation for all scores."
        )


def _grade(
    name: str, column: str, row: int, cell: object, place: Callable[[int], str], words: Mapping[str, float], are_some: bool
) -> float:
    """are_some: whether at least one cell holds a score."""
    if _is_nothing(cell):
        return math.nan
    text = str(cell).strip().casefold()
    if text in words:
        return words[text]
    if words is NLI_LABELS and text in NO_GOLD:
        return math.nan
    number = score_in(text)
    if number is None:
        expected = f"a number, a percentage, or one of {', '.join(NLI_LABELS)}; or yes or no in each row"
        remedy = "Correct the row or leave it out." if are_some else "Write numbers in their place, higher for texts that are more alike."
        raise DataError(where=f"{name}, {column}", found=f"{brief(cell)} in {place(row)}", expected=expected, remedy=remedy)
    return number


def _is_nothing(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip()) or (isinstance(cell, float) and math.isnan(cell))


LEAST_FOR_LABELS, MOST_WORDS = 20, 4  # rows per label, and words of a label: longer or more varied cells are texts


def is_filled(table: pa.Table, column: str) -> bool:
    """Whether at least half of the cells are filled: a comment on some rows is not a column of texts."""
    cells = table[column].to_pylist()
    return 2 * sum(bool(cell and cell.strip()) for cell in cells) >= len(cells)


def label_in(table: pa.Table, column: str) -> str | None:
    """Return a cell of a column of labels or numbers (few distinct, short values, or mostly numbers); None for a column of texts."""
    cells = [str(cell).strip() for cell in table[column].to_pylist() if cell is not None and str(cell).strip()]
    different = Counter(cells)
    is_few = len(cells) >= LEAST_FOR_LABELS and len(different) * LEAST_FOR_LABELS <= len(cells)
    is_short = all(len(cell.split()) <= MOST_WORDS for cell in different)
    numbers = [cell for cell in cells if score_in(cell) is not None]
    if numbers and 2 * len(numbers) >= len(cells):
        return numbers[0]
    return different.most_common(1)[0][0] if is_few and is_short else None


def is_text(table: pa.Table, column: str) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_large_string(table.schema.field(column).type))


def is_numbers(table: pa.Table, column: str) -> bool:
    """Whether a column holds numbers (also written as text) or NLI labels, apart from empty cells."""
    import pyarrow as pa

    kind = table.schema.field(column).type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
        return True
    cells = [cell for cell in table[column].slice(0, 1000).to_pylist() if cell and cell.strip()] if is_text(table, column) else []
    return bool(cells) and all(score_in(cell) is not None or cell.strip().casefold() in NLI_LABELS for cell in cells)


def longest_texts(table: pa.Table) -> list[str]:
    """Return the (at most) two text columns whose first 100 cells have the most words, in table order: most likely those that are meant."""
    words = {}
    for column in table.column_names:
        if is_text(table, column) and not is_numbers(table, column):
            words[column] = sum(len(cell.split()) for cell in table[column].slice(0, 100).to_pylist() if cell)
    longest = sorted(words, key=lambda column: -words[column])[:2]
    return [column for column in table.column_names if column in longest]


def is_list(table: pa.Table, column: str) -> bool:
    return str(table.schema.field(column).type).startswith(("list", "large_list"))


def is_texts(table: pa.Table, column: str) -> bool:
    """Whether the cells of a column are lists of strings."""
    import pyarrow as pa

    if not is_list(table, column):
        return False
    kind = table.schema.field(column).type.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def fields_of_items(table: pa.Table, column: str) -> list[str]:
    """Return the fields of the objects in a column of lists; [] for lists of other values."""
    import pyarrow as pa

    kind = table.schema.field(column).type.value_type
    return [field.name for field in kind] if pa.types.is_struct(kind) else []


TEXT_COLUMNS = "two columns of texts (pairs, FAQ), three (triplets), or two and a score (graded)"
_PLAIN_YAML = re.compile(r"\w(?:[\w .()/-]*[\w.)/-])?")
CHATS = ({"role", "content"}, {"from", "value"})  # fields of a turn


def whether_grades(name: str, texts: Sequence[str], column: str, found: str) -> DataError:
    """Return the error for a column that may or may not hold scores; `found` names the column and its content."""
    remedy = f"If it does: {named([*texts, column])}; if not, name {' and '.join(texts)} alone."
    return DataError(
        where=name, found=f"{found} beside {listed(texts)}", expected="to know whether it says how alike they are", remedy=remedy
    )


def classes_or_scores(name: str, columns: Sequence[str], cells: Mapping[str, int]) -> DataError:
    """Return the error for integers that may be classes: two text columns, then the integers, with the count of each value."""
    in_order = sorted(cells, key=lambda cell: (score_in(cell) or 0.0, cell))
    shown = ", ".join(f"{cell} ({counted(cells[cell], 'row')})" for cell in in_order[:8])
    return DataError(
        where=name,
        found=f"{one_line(columns[2], 60)} with {shown}{', …' if in_order[8:] else ''} beside {listed(columns[:2])}",
        expected="to know whether these are classes, or say how alike the texts are",
        remedy=f"If a higher number is more alike: {named(columns)}; if they are classes, write NLI labels "
        f"(entailment, neutral, contradiction), or name {' and '.join(columns[:2])} alone.",
    )


def less_alike(name: str, columns: Sequence[str]) -> DataError:
    """Return the error for two text columns and a third whose name suggests a distance: higher for less similar texts."""
    return DataError(
        where=name,
        found=f"{one_line(columns[2], 60)} beside {listed(columns[:2])}",
        expected="scores that are higher for texts that are more alike",
        remedy=f"Write 1 minus it, as a column score; if higher is more alike nevertheless: {named(columns)}; "
        f"if it is unrelated to the texts, name {' and '.join(columns[:2])} alone.",
    )


def lists_of_objects(name: str, column: str, fields: Sequence[str], rows: int) -> DataError:
    """Return the error for a column with lists of objects (`fields`) in `rows` rows: the turns of a chat, or rows nested under a key."""
    is_chat = any(names <= set(fields) for names in CHATS)
    found = f"{one_line(column, 60)} with lists of objects, whose fields are {listed(fields)}{', as chats have' if is_chat else ''}"
    if is_chat:
        remedy = 'Write a row for each question with its answer: {"question": …, "answer": …}.'
    elif rows == 1:
        remedy = f"Write each of these objects on a separate line, as `jq -c '.{column}[]'` does."
    else:
        remedy = "Write a row for each pair of texts of a list."
    return DataError(where=name, found=found, expected="texts in columns, a row for each pair", remedy=remedy)


def unclear(name: str, found: str, likely: Sequence[str]) -> DataError:
    """Return the error for columns whose roles are unclear; its example names the `likely` columns."""
    if len(likely) == 1:
        remedy = f"Only {one_line(likely[0], 60)} holds texts: write two that belong together into each row, in separate columns."
        return DataError(where=name, found=found, expected=TEXT_COLUMNS, remedy=remedy)
    two = [one_line(column, 60) for column in likely] if len(likely) == 2 else ["question", "answer"]
    return DataError(where=name, found=found, expected=TEXT_COLUMNS, remedy=f"Name them in this order: {named(two)}.")


def named(columns: Sequence[str]) -> str:
    """Return the options that name these columns, in order, for `tune` and for a recipe."""
    in_marks = [f'"{one}"' if re.search('[,"]', one) else one for one in (column.replace('"', '""') for column in columns)]
    by_commas = ",".join(in_marks)
    by_commas = by_commas if re.fullmatch(r"[\w,.]+", by_commas) else shlex.quote(by_commas)
    in_yaml = ", ".join(column if _PLAIN_YAML.fullmatch(column) else json.dumps(column, ensure_ascii=False) for column in columns)
    return f"--columns {by_commas} (tune), or --set {shlex.quote(f'corpus.columns=[{in_yaml}]')} (a recipe)"


# Of Tevatron (MS MARCO, Mr. TyDi) and of DPR (arXiv 2004.04906).
POSITIVE_PASSAGES = ("positive_passages", "positive_ctxs")
NEGATIVE_PASSAGES = ("negative_passages", "hard_negative_ctxs", "negative_ctxs")


def with_passages(table: pa.Table) -> pa.Table:
    """Return the table with the passages of Tevatron and DPR (lists of objects) as lists of texts, each with its title in front."""
    import pyarrow as pa

    for place, column in enumerate(table.column_names):
        kind = table.schema.field(column).type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if not is_list or column.strip().casefold() not in (*POSITIVE_PASSAGES, *NEGATIVE_PASSAGES):
            continue
        is_nothing = pa.types.is_null(kind.value_type)  # DPR: lists that are empty in all rows
        if not is_nothing and not (pa.types.is_struct(kind.value_type) and kind.value_type.get_field_index("text") >= 0):
            continue
        texts = [None if cell is None else [_text_of(passage) for passage in cell] for cell in table[column].to_pylist()]
        table = table.set_column(place, column, pa.array(texts, pa.large_list(pa.large_string())))
    return table


def _text_of(passage: dict[str, object] | None) -> str:
    parts = [(passage or {}).get("title"), (passage or {}).get("text")]
    return " ".join(part.strip() for part in parts if isinstance(part, str) and part.strip())


# Known column names, compared without case and surrounding spaces.
QUESTIONS = ("question", "query", "frage", "q", "user_query")
ANSWERS = ("answer", "response", "antwort", "reply", "a")
ANCHORS = ("anchor", "sent0", "sentence1", "sentence_1", "text1", "text_1", "sentence_a", "premise", "title", *QUESTIONS)
POSITIVES = (
    *POSITIVE_PASSAGES,
    "positive", "pos", "sent1", "sentence2", "sentence_2", "text2", "text_2", "sentence_b", "hypothesis", "document", "passage",
    "paraphrase", "body", *ANSWERS,
)  # fmt: skip
NEGATIVE_WORDS = re.compile(r"(?<![^\W\d_])(?:(?:neg|hard|hardneg|wrong|falsch)(?![^\W\d_])|negativ|distract|contradict|irrelevant)")
NEGATIVES = (
    "sent2",
    *NEGATIVE_PASSAGES,
    *(f"{hard}{word}" for hard in ("", "hard_", "hard") for word in ("negative", "negatives", "neg", "negs")),
)
GRADES = ("score", "similarity", "similarity_score", "label", "labels", "gold_label", "grade", "gold", "rating", "relatedness", "sim")
GROUPS = ("group", "group_id")
SPLITS = ("split",)
ROW_NAMES = ("id", "index", "")  # columns that name or count rows, such as pandas' index; also by prefix and suffix
ROW_BEGINNINGS, ROW_END = ("__index_level_", "unnamed:"), "_id"
NUMBERED_ID = re.compile("q?id_?[0-9]*")  # qid1, qid2: Quora's questions
GRADE_WORDS = (
    "score", "label", "similar", "relat", "duplicate", "paraphrase", "entail", "grade", "gold", "judg", "rating", "rater", "annotat",
    "match", "ähnlich", "duplikat", "bewertung", "percent", "prozent",
    "somiglianza", "puntua", "punteggio", "相似", "类似", "類似", "сходств", "оценк",
)  # fmt: skip
MEANS = ("mean", "average", "avg", "mittel", "durchschnitt")  # of several annotators' scores, if the cells are numbers
CLASSES = (
    "class",
    "category",
    "klasse",
    "kategorie",
    "target",
    "type",
    "topic",
    "intent",
)  # describe one text rather than the similarity of two
LABELS = ("label", "labels", "gold", "gold_label", *CLASSES)  # may number classes without an order
OPPOSITES = (  # a higher number is less alike
    "differ", "distan", "dissimil", "unähnlich", "abstand", "unterschied", "verschieden", "distanz", "différen", "diferen", "rank",
)  # fmt: skip
KNOWN_NAMES = frozenset((*ANCHORS, *POSITIVES, *NEGATIVES, *GRADES, *GROUPS, *SPLITS))


def is_called_negative(column: str, *, surely: bool = False) -> bool:
    """Whether a column is named like negatives; `surely`: by exact names only, also numbered as in sentence-transformers (negative_1)."""
    plain = re.sub("[ -]", "_", column.strip().casefold())
    if plain in NEGATIVES or re.sub("_?[0-9]+$", "", plain) in NEGATIVES:
        return True
    return not surely and NEGATIVE_WORDS.search(plain) is not None


def is_called_beside(column: str) -> bool:
    """Whether a column is named like groups, splits or row names."""
    plain = column.strip().casefold()
    return (
        plain in (*GROUPS, *SPLITS, *ROW_NAMES)
        or plain.startswith(ROW_BEGINNINGS)
        or plain.endswith(ROW_END)
        or NUMBERED_ID.fullmatch(plain) is not None
    )
