"""What the columns of a person's own table leave open, as errors that ask, and say how to answer."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence

from sentdist.data.own.grades import score_in
from sentdist.errors import DataError, brief, counted, listed, one_line

TEXT_COLUMNS = "two columns of texts (pairs, FAQ), three (triplets), or two and a score (graded)"
_PLAIN_YAML = re.compile(r"\w(?:[\w .()/-]*[\w.)/-])?")
CHATS = ({"role", "content"}, {"from", "value"})  # fields of a turn


def whether_grades(name: str, texts: Sequence[str], column: str, found: str) -> DataError:
    """found: the column, and what it holds."""
    return DataError(
        where=name,
        found=f"{found} beside {listed(texts)}",
        expected="to know whether it says how alike they are",
        remedy=f"If it does: {named([*texts, column])}; if not, name {' and '.join(texts)} alone.",
    )


def which_is_which(name: str, texts: Sequence[str], likely: Sequence[str]) -> DataError:
    """The error for three columns of texts whose names do not say what they are: translations would be each other's negatives.
    likely: two of them to name in an example."""
    return DataError(
        where=name,
        found=f"three columns of texts, {listed(texts)}",
        expected="to know which are alike, and whether one is a negative (a text that does not go with the first)",
        remedy=f"Name two that are alike: {named(likely)}; or, for triplets, anchor, positive and negative in this order: {named(texts)}.",
    )


def classes_or_scores(name: str, columns: Sequence[str], cells: Mapping[str, int]) -> DataError:
    """The error for whole numbers that may be classes. columns: two of texts, then that of the numbers. cells: how often each is there."""
    in_order = sorted(cells, key=lambda cell: (score_in(cell) or 0.0, cell))
    shown = ", ".join(f"{cell} ({counted(cells[cell], 'row')})" for cell in in_order[:8])
    return DataError(
        where=name,
        found=f"{one_line(columns[2], 60)} with {shown}{', …' if in_order[8:] else ''} beside {listed(columns[:2])}",
        expected="to know whether these are classes, or say how alike the texts are",
        remedy=f"If a higher number is more alike: {named(columns)}; if they are classes, write the words of NLI's "
        f"(entailment, neutral, contradiction), or name {' and '.join(columns[:2])} alone.",
    )


def classes_of_texts(name: str, column: str, label: str, texts: Sequence[str]) -> DataError:
    """The error for labels in one of two columns, which would be the texts that the others are alike to. texts: both columns."""
    return DataError(
        where=name,
        found=f"{one_line(column, 60)} with {brief(label)} and few others, as classes are called",
        expected="two texts in each row",
        remedy="Write a row for each pair of texts of one class, in columns of their own; "
        f"if these are texts that belong together: {named(texts)}.",
    )


def less_alike(name: str, columns: Sequence[str]) -> DataError:
    """The error for a column whose name says that it rises with how different the texts are. columns: two of texts, then that one."""
    return DataError(
        where=name,
        found=f"{one_line(columns[2], 60)} beside {listed(columns[:2])}",
        expected="scores that are higher for texts that are more alike",
        remedy=f"Write 1 minus it, as a column score; if higher is more alike all the same: {named(columns)}; "
        f"if it says nothing of the texts, name {' and '.join(columns[:2])} alone.",
    )


def lists_of_objects(name: str, column: str, fields: Sequence[str], rows: int) -> DataError:
    """The error for a column whose cells are lists of objects of these fields: the turns of a chat, or rows under a key."""
    is_chat = any(names <= set(fields) for names in CHATS)
    found = f"{one_line(column, 60)} with lists of objects, whose fields are {listed(fields)}{', as chats have' if is_chat else ''}"
    if is_chat:
        remedy = 'Write a row for each question with its answer: {"question": …, "answer": …}.'
    elif rows == 1:
        remedy = f"Write each of these objects on a line of its own, as `jq -c '.{column}[]'` does."
    else:
        remedy = "Write a row for each pair of texts, with those of its list."
    return DataError(where=name, found=found, expected="texts in columns, a row for each pair", remedy=remedy)


def lists_of_texts(name: str, columns: Sequence[str]) -> DataError:
    """The error for texts that stand in lists, beside none that do not."""
    return DataError(
        where=name,
        found=f"texts in lists, under {listed(columns)}",
        expected="texts in columns, a row for each pair",
        remedy='Write the texts of a list under names of their own, such as {"anchor": …, "positive": …}; '
        "of lists that hold a column each: a row for each text (of pandas, explode() does it).",
    )


def unclear(name: str, found: str, likely: Sequence[str]) -> DataError:
    """likely: columns to name in an example."""
    if len(likely) == 1:
        remedy = f"Only {one_line(likely[0], 60)} holds texts: write two that belong together into each row, in columns of their own."
        return DataError(where=name, found=found, expected=TEXT_COLUMNS, remedy=remedy)
    two = [one_line(column, 60) for column in likely] if len(likely) == 2 else ["question", "answer"]
    return DataError(
        where=name,
        found=found,
        expected=TEXT_COLUMNS,
        remedy=f"Name them in this order: {named(two)}.",
    )


def without_texts(name: str, columns: Sequence[str]) -> DataError:
    """The error for a table of numbers or keys alone."""
    return DataError(
        where=name,
        found=f"columns {listed(columns)}, none of which holds texts",
        expected=TEXT_COLUMNS,
        remedy="Write the texts themselves where their numbers or keys stand.",
    )


def named(columns: Sequence[str]) -> str:
    """How a person names columns, in order, to `tune` and to a recipe."""
    in_marks = [f'"{one}"' if re.search('[,"]', one) else one for one in (column.replace('"', '""') for column in columns)]
    by_commas = ",".join(in_marks)
    by_commas = by_commas if re.fullmatch(r"[\w,.]+", by_commas) else shlex.quote(by_commas)
    in_yaml = ", ".join(column if _PLAIN_YAML.fullmatch(column) else json.dumps(column, ensure_ascii=False) for column in columns)
    return f"--columns {by_commas} (tune), or --set {shlex.quote(f'corpus.columns=[{in_yaml}]')} (a recipe)"
