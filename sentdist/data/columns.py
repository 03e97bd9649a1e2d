"""Name the columns of a table of texts: the roles that usual names have, the shape of its rows, and its scores as numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sentdist.data.cells import NLI_LABELS, NO_GOLD, number_in, row_name
from sentdist.data.tables import check_columns
from sentdist.errors import DataError, brief, listed

if TYPE_CHECKING:
    import pyarrow as pa

Shape = Literal["pairs", "triplets", "graded"]
Role = Literal["anchor", "positive", "negative", "score", "group", "split"]
Named = Mapping[Role, str | tuple[str, ...]]  # column, or columns

# Usual names of each role, compared without case and separators, the most telling first.
USUAL: Mapping[Role, tuple[str, ...]] = {
    "anchor": (
        "anchor", "sentence1", "text1", "question1", "sentencea", "texta", "sent0", "premise", "query", "question", "userquery", "frage",
        "prompt", "q", "title", "titel",
    ),
    "positive": (
        "positive", "positives", "pos", "sentence2", "sent1", "text2", "question2", "sentenceb", "textb", "hypothesis", "answer", "answers",
        "response", "reply", "antwort", "document", "documents", "passage", "context", "paraphrase", "duplicate", "completion", "a", "body",
        "text", "abstract", "description",
    ),
    "negative": ("negative", "negatives", "neg", "hardnegative", "hardnegatives", "hardneg", "sent2"),
    "score": (
        "score", "similarity", "similarityscore", "sim", "relatedness", "relatednessscore", "rating", "grade", "gold", "label", "labels",
        "goldlabel", "isduplicate", "isparaphrase",
    ),
    "group": ("group", "groupid"),
    "split": ("split",),
}  # fmt: skip
CLASSES = ("label", "labels", "gold", "goldlabel")  # of the scores: may number classes without an order, such as those of NLI
SCALES = ((0.0, 1.0), (1.0, 5.0), (-1.0, 1.0), (0.0, 5.0), (1.0, 7.0), (1.0, 10.0), (0.0, 10.0), (0.0, 100.0))
YES_NO: Mapping[str, float] = {"no": 0.0, "n": 0.0, "nein": 0.0, "yes": 1.0, "y": 1.0, "ja": 1.0}
LOOKED_AT = 1000  # rows


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The roles of columns.

    Args:
        columns: two texts, then columns of negatives (triplets) or the score (graded); positives and negatives may be lists.
        group, split: columns that name a row's group and its split; None: absent.
    """

    shape: Shape
    columns: tuple[str, ...]
    group: str | None = None
    split: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of texts."""
        return self.columns[:2] if self.shape == "graded" else self.columns


def plain_name(column: str) -> str:
    """Return the name of a column without case and separators."""
    return re.sub(r"[\W_]+", "", column.casefold())


def usual_column(role: Role, columns: Sequence[str]) -> str | None:
    """Return the first column with a usual name of a role; None without one."""
    by_name = {plain_name(column): column for column in reversed(columns)}
    return next((by_name[name] for name in USUAL[role] if name in by_name), None)


def layout_of(name: str, table: pa.Table, named: Named | None = None) -> Layout:
    """Return the layout of a table, by the roles that the user has named, else by usual names.

    Raises:
        DataError: columns that are absent or of the wrong kind; or no anchor and positive.
    """
    columns, named = table.column_names, dict(named or {})
    given = {role: [found] if isinstance(found, str) else [*found] for role, found in named.items()}
    check_columns(name, columns, [column for found in given.values() for column in found])

    def of(role: Role) -> list[str]:
        if role in given or (role in ("negative", "score") and {"anchor", "positive"} <= given.keys()):
            return given.get(role, [])
        if role == "negative":
            return [one for one in columns if {plain_name(one), plain_name(one).rstrip("0123456789")} & {*USUAL["negative"]}]
        found = usual_column(role, columns)
        return [] if found is None else [found]

    anchor, positive, negatives, score = of("anchor"), of("positive"), of("negative"), of("score")
    if not anchor or not positive or anchor == positive:
        raise _unknown(name, table)
    if "score" not in given and (negatives or len(score and table[score[0]].unique()) < 2):
        score = []  # a constant score says nothing
    for column in (*anchor, *positive, *negatives):
        if (kind := kind_of(table, column)) != "texts" and (kind != "lists" or column in anchor or score):
            expected = "texts" if column in anchor or score else "texts, or lists of texts"
            raise DataError(where=f"{name}, {column}", found=kind, expected=expected, remedy=_type_in(table))
    splits = [one for one in of("split") if "split" in given or len(table[one].unique()) > 1]
    return Layout(
        shape="graded" if score else "triplets" if negatives else "pairs",
        columns=(*anchor, *positive, *(score or negatives)),
        group=next(iter(of("group")), None),
        split=next(iter(splits), None),
    )


def kind_of(table: pa.Table, column: str) -> str:
    """Return what a column holds: texts, numbers (also written as text), lists (of texts), or another type."""
    import pyarrow as pa

    kind = table.schema.field(column).type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
        return "numbers"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "lists" if pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type) else str(kind)
    if not pa.types.is_large_string(kind):
        return str(kind)
    cells = [cell for cell in table[column].slice(0, LOOKED_AT).to_pylist() if cell and cell.strip()]
    return "numbers" if cells and all(number_in(cell) is not None for cell in cells) else "texts"


def _unknown(name: str, table: pa.Table) -> DataError:
    return DataError(
        where=name, found=f"columns {listed(table.column_names)}",
        expected="an anchor and a positive by usual names (question, answer; sentence1, sentence2; …)", remedy=_type_in(table),
    )  # fmt: skip


def _type_in(table: pa.Table) -> str:
    """The options that name the columns, with those of this table that hold texts."""
    texts = [column for column in table.column_names if kind_of(table, column) in ("texts", "lists")]
    one, other = (*texts, "QUESTION", "ANSWER")[:2] if len(texts) != 1 else (texts[0], "ANSWER")
    return (
        f"Name what they are: --columns anchor={one},positive={other} (a recipe: corpus.columns: {{anchor: {one}, positive: {other}}}); "
        "also negative, score, group, split. The first line of a CSV names its columns."
    )


def grades_of(name: str, column: str, cells: Sequence[object]) -> list[float]:
    """Return scores as floats, NaN for empty cells: numbers, percentages, yes and no, or NLI labels.

    Raises:
        DataError: any other cell; numbers that may be classes; equal scores.
    """
    filled = {str(cell).strip().casefold() for cell in cells if not _is_nothing(cell)}
    words = NLI_LABELS if filled & NLI_LABELS.keys() else YES_NO if filled <= YES_NO.keys() else {}
    grades = [_grade(name, column, row, cell, words) for row, cell in enumerate(cells)]
    values = {grade for grade in grades if not math.isnan(grade)}
    if not words and plain_name(column) in CLASSES and not values <= {0.0, 1.0} and all(value.is_integer() for value in values):
        raise DataError(
            where=f"{name}, {column}", found=f"labels {listed([f'{value:g}' for value in sorted(values)])}",
            expected="scores, higher for texts that are more alike; or the words entailment, neutral and contradiction",
            remedy="If they are scores, call the column score; if they are classes, write the words or remove the column.",
        )  # fmt: skip
    if len(values) < 2:
        raise DataError(where=f"{name}, {column}", found="equal scores", expected="scores that differ", remedy="Name another column.")
    return grades


def scale_of(grades: Sequence[float], cells: Sequence[object]) -> tuple[float, float]:
    """Return the scale of scores: that of NLI labels, or the narrowest usual one that contains them, else their own range."""
    if {str(cell).strip().casefold() for cell in cells} & NLI_LABELS.keys():
        return 0.0, 2.0
    numbers = [grade for grade in grades if not math.isnan(grade)]
    low, high = min(numbers), max(numbers)
    usual = [scale for scale in SCALES if scale[0] <= low and high <= scale[1]]
    return min(usual, key=lambda scale: scale[1] - scale[0], default=(low, high))


def score_in(text: str) -> float | None:
    """Like `number_in`, but also reads 45% as 0.45."""
    plain = text.strip()
    number = number_in(plain.removesuffix("%"))
    return round(number / 100, 12) if plain.endswith("%") and number is not None else number


def _grade(name: str, column: str, row: int, cell: object, words: Mapping[str, float]) -> float:
    text = "" if _is_nothing(cell) else str(cell).strip().casefold()
    if text in words:
        return words[text]
    if not text or (words is NLI_LABELS and text in NO_GOLD):
        return math.nan
    number = score_in(text)
    if number is None:
        expected = f"a number, a percentage, or one of {', '.join(NLI_LABELS)}; or yes or no in each row"
        remedy = "Correct or remove the row; or name the columns without the score: --columns anchor=…,positive=…"
        raise DataError(where=f"{name}, {column}", found=f"{brief(cell)} in {row_name(row)}", expected=expected, remedy=remedy)
    return number


def _is_nothing(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip()) or (isinstance(cell, float) and math.isnan(cell))
