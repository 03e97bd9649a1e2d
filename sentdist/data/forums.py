"""Questions of several forums with their duplicates, each forum for itself, as the benchmark USEB has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sentdist.data.sources import released
from sentdist.errors import DataError
from sentdist.reading import reading


@dataclass(frozen=True, kw_only=True)
class Forum:
    """Q questions that are asked, the P others that may be found, and for each of the first the places of its duplicates among these."""

    name: str
    query_ids: tuple[str, ...]
    queries: tuple[str, ...]
    pool: tuple[str, ...]
    duplicates: tuple[frozenset[int], ...]


def read_forums(name: str, *, split: str | None, data_root: Path | None) -> tuple[Forum, ...]:
    """The forums of a release in the shape of USEB's CQADupStack: corpus.json and retrieval_split.json.

    The pool of a forum is without all questions that the split asks, so that none finds itself, as in USEB's own code.

    Raises:
        DataError: no such release, or no such split.
    """
    folder = released.find(name, data_root)
    if folder is None or not (folder / "retrieval_split.json").exists():
        raise DataError(
            where=name, found="no release of that name", expected="a folder with corpus.json and retrieval_split.json", remedy="Fetch it."
        )
    released.read(name, folder)  # tells what is not as it was released
    with reading(folder / "corpus.json", expected="the file as its authors released it", where=name):
        corpus, judged = released.cqadupstack_parts(folder)
    if split not in judged:
        raise DataError(where=name, found=f"split {split}", expected=f"one of {', '.join(judged)}", remedy="Correct the split.")
    return tuple(_forum(forum, corpus[forum], asked) for forum, asked in judged[split].items())


def _forum(name: str, questions: dict[str, str], asked: dict[str, list[str]]) -> Forum:
    pool = [key for key in questions if key not in asked]
    place = {key: number for number, key in enumerate(pool)}
    return Forum(
        name=name,
        query_ids=tuple(f"{name}:{key}" for key in asked),
        queries=tuple(questions[key] for key in asked),
        pool=tuple(questions[key] for key in pool),
        duplicates=tuple(frozenset(place[key] for key in found if key in place) for found in asked.values()),
    )
