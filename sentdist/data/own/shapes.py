"""Recognise the columns of a user table (texts, scores, group, split) and its shape: pairs, triplets, graded or faq."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from sentdist.data.graded import NLI_LABELS
from sentdist.data.own.columns import (
    ANCHORS,
    ANSWERS,
    CLASSES,
    GRADE_WORDS,
    GRADES,
    GROUPS,
    LABELS,
    LEAST_FOR_LABELS,
    MEANS,
    OPPOSITES,
    POSITIVES,
    QUESTIONS,
    SCALES,
    SPLITS,
    TEXT_COLUMNS,
    YES_NO,
    classes_or_scores,
    fields_of_items,
    is_called_beside,
    is_called_negative,
    is_filled,
    is_list,
    is_numbers,
    is_text,
    is_texts,
    label_in,
    less_alike,
    lists_of_objects,
    longest_texts,
    named,
    score_in,
    unclear,
    whether_grades,
    words_of,
)
from sentdist.data.own.files import flattened
from sentdist.data.sources.file_facts import check_columns
from sentdist.data.sources.files import with_large_strings
from sentdist.errors import DataError, brief, counted, listed, one_line

if TYPE_CHECKING:
    import pyarrow as pa

Shape = Literal["pairs", "triplets", "graded", "faq"]
SHAPES: tuple[Shape, ...] = get_args(Shape)

MOST_CLASSES = 20
MOSTLY = 0.9  # of the cells
WITHOUT_BLANKS = "\u0590"  # first script whose words are not separated by spaces, or contain marks that are no letters


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The roles of columns.

    Args:
        columns: two texts, then one or more columns of negatives (triplets) or the score (graded); positives and negatives may be lists.
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


def layout_of(name: str, table: pa.Table, *, shape: str | None, columns: Sequence[str] | None, group: str | None) -> Layout:
    """Return the layout of a table; arguments that are None are recognised by the names of columns, then by their cells.

    Raises:
        DataError: columns that are absent, do not fit the shape, or are ambiguous.
    """
    table = _without_headers(table)
    found = table.column_names
    by_name = {column.strip().casefold(): column for column in reversed(found)}
    own_group = group or next((by_name[known] for known in GROUPS if known in by_name), None)
    split = next((by_name[known] for known in SPLITS if known in by_name and len(table[by_name[known]].unique()) > 1), None)
    if columns is not None:
        check_columns(name, found, columns)
        chosen = tuple(columns)
    else:
        chosen = _by_name(name, table, by_name, shape) or _by_content(name, table, shape, without=own_group)
    if own_group is not None:
        check_columns(name, found, [own_group])
    settled = shape or _shape_of(name, table, chosen, is_named=columns is not None)
    wanted = {"pairs": 2, "faq": 2, "triplets": max(3, len(chosen))}.get(settled, 3)
    if settled not in SHAPES or len(chosen) != wanted or len(set(chosen)) != wanted:
        raise unclear(name, f"columns {listed(chosen)} for {settled}", longest_texts(table))
    if shape is None:
        _check_labels(name, table, chosen, settled, is_named=columns is not None)
    if settled == "graded":
        _check_nli(name, table, chosen)
        if shape is None and columns is None:
            _check_classes(name, table, chosen)
    layout = Layout(shape=settled, columns=chosen, group=own_group, split=split)
    for column in layout.texts:
        if columns is not None and is_numbers(table, column):
            expected = f"texts, in place {chosen.index(column) + 1} of {listed(chosen)}"
            remedy = "Name the columns in their order: the texts first, a score last."
            raise DataError(where=f"{name}, {column}", found="numbers", expected=expected, remedy=remedy)
        may_be_several = settled != "graded" and column != chosen[0]
        if not is_text(table, column) and not (may_be_several and is_texts(table, column)):
            inner = [name for name in flattened(table.select([column])).column_names if name != column]
            remedy = f"Name a column of texts{f': its fields are {listed(inner)}' if inner else ''}."
            remedy = "Write a row for each text in a list, or name a column of texts." if is_list(table, column) else remedy
            raise DataError(where=f"{name}, {column}", found=f"{table.schema.field(column).type} values", expected="texts", remedy=remedy)
    return layout


def _without_headers(table: pa.Table) -> pa.Table:
    """The table without repeated headers, which would turn columns of numbers into words."""
    import pyarrow as pa
    import pyarrow.compute as pc

    named = [pc.equal(table[column], column) for column in table.column_names if pa.types.is_large_string(table.schema.field(column).type)]
    if not named or not any(pc.any(one).as_py() for one in named[:1]):
        return table
    is_header = functools.reduce(pc.and_kleene, named)
    return table.filter(pc.invert(pc.fill_null(is_header, False)))


def _negatives(table: pa.Table) -> tuple[list[str], list[str]]:
    """Columns of texts, or lists of texts, that are named like negatives: surely, and perhaps (mostly filled, and no labels)."""
    named = [column for column in table.column_names if is_called_negative(column)]
    sure = [column for column in named if is_called_negative(column, surely=True) and _holds_texts(table, column)]
    perhaps = [column for column in named if column not in sure and is_text(table, column) and not is_numbers(table, column)]
    return sure, [column for column in perhaps if is_filled(table, column) and label_in(table, column) is None]


def _holds_texts(table: pa.Table, column: str) -> bool:
    """Whether the cells of a column are texts that are no numbers, or lists of texts."""
    return is_texts(table, column) or (is_text(table, column) and not is_numbers(table, column))


def _by_name(name: str, table: pa.Table, by_name: dict[str, str], shape: str | None) -> tuple[str, ...] | None:
    """The columns recognised by name; None without two columns of texts. Constant scores are ignored."""

    def first(names: Sequence[str], without: tuple[str | None, ...] = ()) -> str | None:
        return next((by_name[known] for known in names if known in by_name and by_name[known] not in without), None)

    anchor = first(ANCHORS)
    positive = first(POSITIVES, (anchor,))
    if anchor is None or positive is None:
        return None
    sure, perhaps = _negatives(table)
    grade = first(GRADES)
    if shape is None and grade is not None and len(table[grade].unique()) < 2:
        grade = None
    negatives = sure or perhaps[:1]
    if shape == "graded" or (shape is None and grade is not None and not sure):
        further = [] if grade is None else [grade]
    else:
        further = negatives if shape in (None, "triplets") else []
    if shape in ("triplets", "graded") and not further:
        return None
    return (anchor, positive, *further)


def _by_content(name: str, table: pa.Table, shape: str | None, *, without: str | None) -> tuple[str, ...]:
    """The columns recognised by content: the only two or three text columns, or the only two and the only column of numbers."""
    columns = [column for column in table.column_names if column != without and not _is_beside(table, column)]
    numbers = [column for column in columns if is_numbers(table, column)]
    further = _negatives(table)[0][1:]
    texts = [column for column in columns if column not in (*numbers, *further) and is_text(table, column)]
    if shape is None:
        filled = [column for column in texts if is_filled(table, column)]
        texts = filled if len(filled) == 2 else texts
        scores = [column for column in numbers if any(word in column.casefold() for word in GRADE_WORDS)]
        plain = [column for column in filled if label_in(table, column) is None]  # without the annotator, such as AK and MS
        if len(plain) == 2 and len(numbers) == 1 and scores:
            return (*plain, *scores)
    if shape != "triplets":
        texts = _without_codes(name, table, texts)
        numbers = [] if len(numbers) == 1 and _numbers_rows(table, numbers[0]) else numbers
    if len(texts) == 2 and len(numbers) == 1 and shape in ("graded", None):
        if shape is None:
            _check_scale(name, table, texts, numbers[0])
        return (*texts, *numbers)
    if len(texts) == 3 and shape is None and not is_called_negative(texts[2]) and label_in(table, texts[2]) is None:
        two = named(longest_texts(table.select(texts)))  # translations would become each other's negatives
        expected = "to know which are alike, and whether one is a negative (a text that does not match the first)"
        remedy = f"Name two that are alike: {two}; or, for triplets, anchor, positive and negative in this order: {named(texts)}."
        raise DataError(where=name, found=f"three columns of texts, {listed(texts)}", expected=expected, remedy=remedy)
    if len(texts) in (2, 3) and shape != "graded":
        return (*texts, *(further if len(texts) == 3 and shape in (None, "triplets") else ()))
    flat = flattened(table)
    lists = [column for column in flat.column_names if is_list(flat, column)]
    for column in lists:
        if fields := fields_of_items(flat, column):
            raise lists_of_objects(name, column, fields, len(flat))
    likely = longest_texts(with_large_strings(flat))
    if lists and not likely:
        raise DataError(
            where=name, found=f"texts in lists, under {listed(lists)}", expected="texts in columns, a row for each pair",
            remedy='Write the texts of a list under separate names, such as {"anchor": …, "positive": …}; '
            "if each list is a whole column, write a row for each text (pandas: explode()).",
        )  # fmt: skip
    of_lists = (
        f", of which {listed(lists)} {'hold' if lists[1:] else 'holds'} lists: each text in a list needs a separate row" if lists else ""
    )
    if not likely and not lists and shape is None:
        found = f"columns {listed(flat.column_names)}, none of which holds texts"
        raise DataError(
            where=name, found=found, expected=TEXT_COLUMNS, remedy="Write the texts themselves instead of their numbers or keys."
        )
    grading = [column for column in numbers if _are_grades(table, column)]
    if len(likely) == 2 and len(grading) == 1 and shape in (None, "graded"):
        raise whether_grades(
            name, likely, grading[0], f"columns {listed(flat.column_names)}, with numbers of a usual scale in {grading[0]},"
        )
    raise unclear(name, f"columns {listed(flat.column_names)}{of_lists}", likely)


def _are_grades(table: pa.Table, column: str) -> bool:
    """Whether numbers look like scores: on a usual scale, and not all integers."""
    numbers = [score_in(str(cell)) for cell in table[column].to_pylist() if cell is not None and str(cell).strip()]
    found = [number for number in numbers if number is not None]
    is_usual = bool(found) and any(low <= min(found) and max(found) <= high for low, high in SCALES)
    return is_usual and not all(number.is_integer() for number in found)


def _without_codes(name: str, table: pa.Table, texts: list[str]) -> list[str]:
    """The text columns without dates, addresses and keys, if two others are left; DataError if one is left."""
    codes = {column: code for column in texts if (code := _code_in(table, column)) is not None}
    plain = [column for column in texts if column not in codes]
    if codes and len(plain) == 1:
        first = next(iter(codes))
        raise unclear(name, f"{one_line(first, 60)} with {brief(codes[first])} beside {plain[0]}", longest_texts(table))
    return plain if len(plain) == 2 else texts


def _code_in(table: pa.Table, column: str) -> str | None:
    """The first cell of a column of mostly dates, times, addresses, amounts or keys: no words, but digits or signs that no word has."""
    cells = [cell.strip() for cell in table[column].slice(0, 1000).to_pylist() if cell and cell.strip()]
    codes = [cell for cell in cells if _is_code(cell)]
    is_code = bool(codes) and len(codes) >= MOSTLY * len(cells) and label_in(table, column) is None  # labels raise an error later
    return codes[0] if is_code else None


def _is_code(cell: str) -> bool:
    words = [word for word in cell.split() if word.strip(".,;:!?()\"'„“”").isalpha()]
    if any(letter >= WITHOUT_BLANKS and letter.isalpha() for letter in cell):
        return False
    return not words and any(letter.isdigit() or letter in "@/\\_" for letter in cell)


def _numbers_rows(table: pa.Table, column: str) -> bool:
    """Whether numbers are row ids: distinct integers beyond the usual scales of scores."""
    cells = [str(cell).strip() for cell in table[column].to_pylist() if cell is not None and str(cell).strip()]
    are_whole = all(cell.isdecimal() for cell in cells)
    return are_whole and len(cells) >= LEAST_FOR_LABELS and len({*cells}) == len(cells) and max(map(int, cells)) > SCALES[-1][1]


def _check_scale(name: str, table: pa.Table, texts: Sequence[str], column: str) -> None:
    """Raise DataError for numbers without a name of scores and on no usual scale: counts, prices, years."""
    plain = column.strip().casefold()
    if plain in GRADES or any(word in plain for word in GRADE_WORDS):
        return
    numbers = [number for cell in table[column].to_pylist() if cell is not None and (number := score_in(str(cell))) is not None]
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    if not any(scale[0] <= low and high <= scale[1] for scale in SCALES):
        raise whether_grades(name, texts, column, f"{one_line(column, 60)} with numbers from {low:g} to {high:g}, no usual scores,")


def _is_beside(table: pa.Table, column: str) -> bool:
    """Whether a column holds neither texts nor scores, but groups, splits, row names, 0, 1, 2, … or nothing."""
    if is_called_beside(column):
        return True
    cells = ["" if cell is None else str(cell).strip() for cell in table[column].slice(0, 1000).to_pylist()]
    counted = any(cells == [str(number) for number in range(first, first + len(cells))] for first in (0, 1))
    return counted or (not any(cells) and not any(cell and str(cell).strip() for cell in table[column].to_pylist()))


def _shape_of(name: str, table: pa.Table, chosen: tuple[str, ...], *, is_named: bool) -> str:
    """The shape, by the names of the columns, then by whether the third one holds numbers or labels."""
    if len(chosen) == 2:
        plain = [column.strip().casefold() for column in chosen]
        return "faq" if plain[0] in QUESTIONS and plain[1] in ANSWERS else "pairs"
    if len(chosen) > 3 and all(is_called_negative(column) for column in chosen[2:]):
        return "triplets"
    if len(chosen) != 3:
        raise unclear(name, counted(len(chosen), "column"), longest_texts(table))
    third = chosen[2].strip().casefold()
    is_called_graded = third in GRADES or any(word in third for word in GRADE_WORDS)
    is_graded = not (is_called_negative(third, surely=True) or is_texts(table, chosen[2]))
    are_labels = is_numbers(table, chosen[2]) or (is_named and _are_yes_no(table, chosen[2]))
    is_graded = is_graded and (is_called_graded or are_labels)
    return "graded" if is_graded else "triplets"


def _are_yes_no(table: pa.Table, column: str) -> bool:
    return words_of(table[column].to_pylist()) is YES_NO


def _check_labels(name: str, table: pa.Table, chosen: Sequence[str], settled: str, *, is_named: bool) -> None:
    """Raise DataError for labels that would be negatives, and for unread labels next to pairs: pairs labelled as different would be
    positives. A constant label is ignored unless it is 0."""
    is_triplets = settled == "triplets" and not is_called_negative(chosen[2], surely=True)
    if is_triplets and _are_yes_no(table, chosen[2]):
        raise whether_grades(name, chosen[:2], chosen[2], f"{one_line(chosen[2], 60)} with yes or no")
    if is_triplets and (label := label_in(table, chosen[2])) is not None:
        raise unclear(name, f"{one_line(chosen[2], 60)} with {brief(label)}, which is no negative", chosen[:2])
    if settled not in ("pairs", "faq") or is_named:
        return
    for column in table.column_names:
        if column not in chosen and any(word in column.casefold() for word in GRADE_WORDS):
            cells = {str(cell).strip().casefold() for cell in table[column].to_pylist()}
            if cells <= {"none", "nan", ""} and cells != {""}:
                raise whether_grades(name, chosen, column, f"{one_line(column, 60)} without a number")
    for column in chosen if settled == "pairs" else ():
        if is_text(table, column) and (label := label_in(table, column)) is not None:
            raise DataError(
                where=name, found=f"{one_line(column, 60)} with {brief(label)} and few others, as classes are called",
                expected="two texts in each row",
                remedy="Write a row for each pair of texts of one class, in two separate columns; "
                f"if these are texts that belong together: {named(chosen)}.",
            )  # fmt: skip
    beside = [column for column in table.column_names if column not in chosen and not _is_beside(table, column)]
    asked = []
    for column in beside:
        is_called_so = any(word in column.casefold() for word in (*GRADE_WORDS, *OPPOSITES))
        may_grade = settled == "pairs" and is_numbers(table, column) and _are_grades(table, column)
        if (is_called_so or may_grade) and not is_list(table, column):
            cells = {str(cell).strip().casefold() for cell in table[column].to_pylist() if cell is not None} - {""}
            if len(cells) > 1 or cells & {"0", "0.0", "false"}:
                is_opposite = any(word in column.casefold() for word in OPPOSITES)
                if is_opposite and is_numbers(table, column):
                    raise less_alike(name, (*chosen, column))
                if not is_opposite or label_in(table, column) is not None:  # else a text that describes the difference
                    asked.append(column)
    if asked:
        means = [column for column in beside if any(word in column.casefold() for word in MEANS) and is_numbers(table, column)]
        raise whether_grades(name, chosen, [*means, *asked][0], listed(list(dict.fromkeys([*asked, *means]))))


def _check_nli(name: str, table: pa.Table, chosen: Sequence[str]) -> None:
    """Raise DataError for numeric NLI labels: in releases entailment is 0 and contradiction 2, the reverse of similarity."""
    if [column.strip().casefold() for column in chosen[:2]] != ["premise", "hypothesis"]:
        return
    numbers = {score_in(str(cell)) for cell in table[chosen[2]].to_pylist() if cell is not None and str(cell).strip()}
    if numbers and numbers <= {-1.0, 0.0, 1.0, 2.0}:
        raise DataError(
            where=f"{name}, {chosen[2]}",
            found="labels of NLI as numbers "
            f"({', '.join(f'{number:g}' for number in sorted(number for number in numbers if number is not None))})",
            expected=f"words ({', '.join(NLI_LABELS)}), since in most releases 0 is entailment, and a higher number less alike",
            remedy="Write the words; if a higher number is more alike, rename the texts to sentence1 and sentence2.",
        )


def _check_classes(name: str, table: pa.Table, chosen: Sequence[str]) -> None:
    """Raise DataError for few distinct integers in a column that is named like classes or has no name of scores: 0, 1, 2 may be entailment,
    neutral, contradiction. 0 and 1 are read as scores if the name allows it: two texts are alike or not."""
    plain = chosen[2].strip().casefold()
    if any(word in plain for word in OPPOSITES) and is_numbers(table, chosen[2]):
        raise less_alike(name, chosen)
    is_class = plain.replace(" ", "_") in LABELS
    if not is_class and (plain in GRADES or any(word in plain for word in GRADE_WORDS)):
        return
    cells = Counter(str(cell).strip() for cell in table[chosen[2]].to_pylist() if cell is not None and str(cell).strip())
    numbers = {score_in(cell) for cell in cells}
    if None in numbers or not all(float(number or 0.0).is_integer() for number in numbers):  # words of NLI, or scores
        return
    is_truth = numbers <= {0.0, 1.0} and plain not in CLASSES
    few = MOST_CLASSES if is_class else 3
    if not is_truth and 1 < len(numbers) <= few:
        raise classes_or_scores(name, chosen, cells)
