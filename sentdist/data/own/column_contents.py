"""What stands in the cells of a column: texts, numbers, labels, lists."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sentdist.data.graded import NLI_LABELS
from sentdist.data.own.grades import score_in

if TYPE_CHECKING:
    import pyarrow as pa

LEAST_FOR_LABELS, MOST_WORDS = 20, 4  # rows for each label, and words of one: what is longer or more varied is a text


def is_filled(table: pa.Table, column: str) -> bool:
    """Whether most cells of a column hold something: a remark on some rows is no text of each."""
    cells = table[column].to_pylist()
    return 2 * sum(bool(cell and cell.strip()) for cell in cells) >= len(cells)


def label_in(table: pa.Table, column: str) -> str | None:
    """A cell of a column that holds labels or numbers more than texts: of few, short, different values, or numbers for the most part."""
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
    """Whether a column holds numbers, as such or as text, or the words of NLI labels; empty cells do not count."""
    import pyarrow as pa

    kind = table.schema.field(column).type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
        return True
    cells = [cell for cell in table[column].slice(0, 1000).to_pylist() if cell and cell.strip()] if is_text(table, column) else []
    return bool(cells) and all(score_in(cell) is not None or cell.strip().casefold() in NLI_LABELS for cell in cells)


def longest_texts(table: pa.Table) -> list[str]:
    """The two columns whose first cells have most words, in the order of the table: what a user most likely means; fewer where there are
    fewer."""
    words = {}
    for column in table.column_names:
        if is_text(table, column) and not is_numbers(table, column):
            words[column] = sum(len(cell.split()) for cell in table[column].slice(0, 100).to_pylist() if cell)
    longest = sorted(words, key=lambda column: -words[column])[:2]
    return [column for column in table.column_names if column in longest]


def is_list(table: pa.Table, column: str) -> bool:
    return str(table.schema.field(column).type).startswith(("list", "large_list"))


def is_texts(table: pa.Table, column: str) -> bool:
    """Whether the cells of a column are lists of texts."""
    import pyarrow as pa

    if not is_list(table, column):
        return False
    kind = table.schema.field(column).type.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def fields_of_items(table: pa.Table, column: str) -> list[str]:
    """The fields of the objects in the lists of a column; none where these hold other things."""
    import pyarrow as pa

    kind = table.schema.field(column).type.value_type
    return [field.name for field in kind] if pa.types.is_struct(kind) else []
