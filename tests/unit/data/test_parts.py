"""A folder of the parts of one table, or a pattern that names them: what is said to be done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentdist.data.texts import open_texts
from sentdist.errors import DataError

PARTS = {".csv": "text,n\n{0},1\n", ".jsonl": '{{"text": "{0}"}}\n', ".txt": "{0}\n", ".parquet": ""}


@pytest.mark.parametrize("suffix", PARTS)
@pytest.mark.parametrize("is_pattern", [True, False])
def test_the_command_that_is_reported_makes_one_table_of_the_parts(
    suffix: str, is_pattern: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said of a folder to check the path, and of a pattern that there is no such file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shards").mkdir()
    for number, text in enumerate(["A dog runs.", "A cat sleeps."]):
        path = tmp_path / "shards" / f"part-{number}{suffix}"
        if suffix == ".parquet":
            pq.write_table(pa.table({"text": [text]}), path)
        else:
            path.write_text(PARTS[suffix].format(text))
    asked = f"shards/*{suffix}" if is_pattern else "shards"
    with pytest.raises(DataError) as refused:
        open_texts(asked)
    reported = refused.value.remedy
    command = reported.partition("put into one file first: ")[2].replace("python -c", f"{sys.executable} -c")
    assert command, reported
    subprocess.run(command, shell=True, check=True)
    whole = open_texts(f"shards{suffix}", columns=[] if suffix == ".txt" else ["text"])
    assert [text for batch in whole.batches(10) for text in batch[whole.columns[0]]] == ["A dog runs.", "A cat sleeps."]


def test_a_folder_without_tables_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(DataError, match="It holds no such table"):
        open_texts(str(tmp_path))
    (tmp_path / "one.csv").write_text("text\na\n")
    with pytest.raises(DataError, match=r"Name a file in it: .*one\.csv\.$"):
        open_texts(str(tmp_path))
