"""Tables in Arrow's own format, as a file or as a stream, as `datasets` keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

FILE_BEGINS = b"ARROW1"


def read_arrow(path: Path) -> pa.Table:
    """All rows of a file. It stays mapped while they are used. pyarrow's ArrowInvalid for what is no such file, or a part of one."""
    import pyarrow as pa

    mapped = pa.memory_map(str(path))
    is_file = mapped.read(len(FILE_BEGINS)) == FILE_BEGINS
    mapped.seek(0)
    return (pa.ipc.open_file(mapped) if is_file else pa.ipc.open_stream(mapped)).read_all()
