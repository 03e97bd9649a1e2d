"""Passages with a title, as collections for dense retrieval have them beside each query: read as texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

# Of Tevatron (MS MARCO, Mr. TyDi) and of DPR (arXiv 2004.04906).
POSITIVE_PASSAGES = ("positive_passages", "positive_ctxs")
NEGATIVE_PASSAGES = ("negative_passages", "hard_negative_ctxs", "negative_ctxs")


def with_passages(table: pa.Table) -> pa.Table:
    """The table with lists of texts, a title before its text, for the lists of objects in columns of these names."""
    import pyarrow as pa

    for place, column in enumerate(table.column_names):
        kind = table.schema.field(column).type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if not is_list or column.strip().casefold() not in (*POSITIVE_PASSAGES, *NEGATIVE_PASSAGES):
            continue
        is_nothing = pa.types.is_null(kind.value_type)  # DPR's lists that are empty in all rows
        if not is_nothing and not (pa.types.is_struct(kind.value_type) and kind.value_type.get_field_index("text") >= 0):
            continue
        texts = [None if cell is None else [_text_of(passage) for passage in cell] for cell in table[column].to_pylist()]
        table = table.set_column(place, column, pa.array(texts, pa.large_list(pa.large_string())))
    return table


def _text_of(passage: dict[str, object] | None) -> str:
    parts = [(passage or {}).get("title"), (passage or {}).get("text")]
    return " ".join(part.strip() for part in parts if isinstance(part, str) and part.strip())
