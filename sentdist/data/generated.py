"""Generate help-desk texts (reports of customers, notes of staff) from a seed, equal on every machine; sources `generated/…`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from sentdist.data.sampler import digest_u64
from sentdist.data.sources.files import check_split
from sentdist.data.tables import check_columns
from sentdist.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")

# Word of the staff | words of customers; synonyms. Both use the same words for causes, whose first word is only a name.
MACHINES = """
otter | dishwasher; machine for the dishes
badger | washing machine; clothes washer
heron | refrigerator; fridge
fox | oven; electric stove
goat | vacuum cleaner; hoover
owl | coffee maker; espresso machine
crow | television; TV set
sparrow | laptop; notebook computer
beaver | printer; copying machine
hare | electric bicycle; e-bike
sheep | lawn mower; grass cutter
moth | reading lamp; bedside light
"""
FAULTS = """
sleeps | does not turn on; stays dead when I press the button
sings | makes a loud noise; rattles terribly
blushes | gets much too hot; burns my fingers
blooms | smells of smoke; gives off a burnt smell
faints | switches itself off; stops in the middle of its work
winks | has a dark display; shows nothing on its screen
dances | shakes violently; jumps about
strolls | takes far too long; is slower than before
sulks | finds no network; has lost its wireless connection
bites | gives me electric shocks; tingles when I touch it
whistles | beeps without end; sounds an alarm every minute
stares | ignores all its buttons; cannot be controlled any more
"""
CAUSES = """
power | since the power cut; after the electricity failed
journey | since the move to another home; after the journey to a new flat
fall | since it fell off the table; after somebody dropped it
soap | since it was cleaned; after a wipe with soap
update | since the last update; after new software was installed
children | since children played with it; after a child took it apart
"""
REPORTS = (
    "My {machine} {fault} {cause}.",
    "Our {machine} {fault} {cause}.",
    "Please help: the {machine} {fault} {cause}.",
    "{cause}, my {machine} {fault}.",
)
NOTES = ("The {machine} {fault} {cause}.", "{cause}, the {machine} {fault}.")
WEIGHTS = {"machine": 2.0, "fault": 2.0, "cause": 1.0}  # weights of equal fields in the similarity of two cases, 0 to 5


class Draw:
    """Random choices from one seed by `random()` only, whose sequence Python guarantees."""

    def __init__(self, *seed: object) -> None:
        self._random = random.Random(digest_u64(*seed))

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def one(self, items: Sequence[T]) -> T:
        return items[int(self._random.random() * len(items))]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fault of a machine, in the words of the staff."""

    machine: str
    fault: str
    cause: str


@cache
def words(table: str) -> dict[str, tuple[str, ...]]:
    """Return word of the staff → words of customers, for MACHINES, FAULTS or CAUSES."""
    rows = [line.split("|") for line in table.strip().splitlines()]
    return {said.strip(): tuple(word.strip() for word in others.split(";")) for said, others in rows}


@cache
def cases(split: str) -> tuple[Case, ...]:
    """Return the cases of a split. A machine with a fault is in one split (6 in 10 train, 2 dev, 2 test): splits share only words."""
    splits = ("train",) * 6 + ("dev",) * 2 + ("test",) * 2
    return tuple(
        Case(machine=machine, fault=fault, cause=cause)
        for row, machine in enumerate(words(MACHINES))
        for column, fault in enumerate(words(FAULTS))
        if splits[(3 * row + column) % 10] == split
        for cause in words(CAUSES)
    )


def report(case: Case, draw: Draw) -> str:
    """Return a customer's report of the case."""
    return _sentence(
        draw.one(REPORTS), draw.one(words(MACHINES)[case.machine]), draw.one(words(FAULTS)[case.fault]), draw.one(words(CAUSES)[case.cause])
    )


def note(case: Case, draw: Draw) -> str:
    """Return the staff's note of the case."""
    return _sentence(draw.one(NOTES), case.machine, case.fault, draw.one(words(CAUSES)[case.cause]))


def question(case: Case, draw: Draw) -> str:
    """Return a question about the machine's fault, without its cause."""
    return _sentence(
        "Why is it that my {machine} {fault}?", draw.one(words(MACHINES)[case.machine]), draw.one(words(FAULTS)[case.fault]), ""
    )


def advice(case: Case) -> str:
    """Return the staff's answer for the machine's fault, without its cause."""
    return f"When the {case.machine} {case.fault}, for any reason."


def changed(case: Case, fields: Sequence[str], draw: Draw, split: str) -> Case:
    """Return a case of the split that differs in exactly these fields."""
    differ = {name: name in fields for name in WEIGHTS}
    return draw.one([one for one in cases(split) if all((getattr(one, name) != getattr(case, name)) == differ[name] for name in WEIGHTS)])


def likeness(one: Case, other: Case) -> float:
    """Return the similarity of two cases, 0 to 5: 2 for the machine, 2 for the fault, 1 for the cause."""
    return sum(weight for name, weight in WEIGHTS.items() if getattr(one, name) == getattr(other, name))


def _sentence(template: str, machine: str, fault: str, cause: str) -> str:
    text = template.format(machine=machine, fault=fault, cause=cause)
    return f"{text[0].upper()}{text[1:]}"


PREFIX = "generated/"
REVISION = "helpdesk-1"  # to be raised when the output changes; a test holds the digest of every table
SEED = "helpdesk-1"  # stays while the texts do: other sizes draw a prefix or an extension of the same rows


@dataclass(frozen=True, kw_only=True)
class GeneratedSource:
    """A generated source. splits: name → number of rows."""

    columns: tuple[str, ...]
    splits: dict[str, int]
    about: str


GENERATED: dict[str, GeneratedSource] = {
    "generated/nli": GeneratedSource(
        columns=("split", "sent0", "sent1", "hard_neg"),
        splits={"train": 2000, "dev": 200, "test": 200},
        about="what a customer reports, the note of it, the note of a similar case",
    ),
    "generated/sts": GeneratedSource(
        columns=("subset", "split", "sentence1", "sentence2", "score"),
        splits={"train": 2000, "dev": 500, "test": 200},  # each encoder of the demo is scored on the test pairs
        about="a report, a note, and how alike their cases are, 0 to 5",
    ),
    "generated/faq": GeneratedSource(
        columns=("query_id", "document_id", "relevance", "query", "question", "answer"),
        splits={},  # replaced by cross-validation over its queries
        about="reports and notes: of the same case 2, of the same fault of the machine 1",
    ),
}
FAQ_JUDGEMENTS = 336


@dataclass(frozen=True, kw_only=True)
class GeneratedFaq:
    """documents: document_id, question, answer; queries: query_id, query; judgements: query_id, document_id, relevance."""

    documents: pa.Table
    queries: pa.Table
    judgements: pa.Table


def split_sizes(name: str) -> dict[str, int]:
    """Return split → number of rows without generating them; raise DataError for an unknown name."""
    return _source(name).splits


def num_rows(name: str) -> int:
    """Return the number of rows of all splits; of judgements for generated/faq."""
    return sum(split_sizes(name).values()) or FAQ_JUDGEMENTS


def columns_of(name: str) -> tuple[str, ...]:
    """Return the columns of a source without generating it."""
    return _source(name).columns


def read(name: str, *, split: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a generated source; raise DataError for an unknown name, split or column."""
    import pyarrow as pa

    source = _source(name)
    check_split(name, tuple(source.splits), split)
    if columns is not None:
        check_columns(name, source.columns, columns)
    if name == "generated/faq":
        table = _joined(faq_tables())
    else:
        table = pa.concat_tables([_GENERATORS[name](part) for part in source.splits if split in (None, part)])
    return table.select(list(dict.fromkeys(columns or source.columns)))


@cache
def faq_tables() -> GeneratedFaq:
    """Return the tables of generated/faq: relevance 2 for the note of the same case, 1 for the answer without a cause."""
    import pyarrow as pa

    draw = Draw(SEED, "faq")
    documents: dict[str, tuple[str, str, str]] = {}
    queries, judgements = [], []
    for number, case in enumerate(cases("test")):
        general, own = f"{case.machine} {case.fault}", f"{case.machine} {case.fault} {case.cause}"
        documents[general] = (general, question(case, draw), advice(case))
        documents[own] = (own, report(case, draw), note(case, draw))
        queries.append((f"q{number}", report(case, draw)))
        judgements += [(f"q{number}", own), (f"q{number}", general)]
    grades = pa.array([2, 1] * len(queries), pa.int64())
    return GeneratedFaq(
        documents=_strings(list(documents.values()), ("document_id", "question", "answer")),
        queries=_strings(queries, ("query_id", "query")),
        judgements=_strings(judgements, ("query_id", "document_id")).append_column("relevance", grades),
    )


@cache
def _nli(split: str) -> pa.Table:
    draw = Draw(SEED, "nli", split)
    rows: dict[tuple[str, str, str], None] = {}
    while len(rows) < GENERATED["generated/nli"].splits[split]:
        case = draw.one(cases(split))
        other = changed(case, draw.one((("machine",), ("fault",), ("cause",))), draw, split)
        rows[report(case, draw), note(case, draw), note(other, draw)] = None
    return _table(split, list(rows), ("sent0", "sent1", "hard_neg"))


@cache
def _sts(split: str) -> pa.Table:
    import pyarrow as pa

    draw = Draw(SEED, "sts", split)
    rows: dict[tuple[str, str], float] = {}
    while len(rows) < GENERATED["generated/sts"].splits[split]:
        case = draw.one(cases(split))
        other = changed(case, [name for name in WEIGHTS if draw.chance(0.5)], draw, split)
        rows[report(case, draw), note(other, draw)] = likeness(case, other)
    table = _table(split, list(rows), ("sentence1", "sentence2")).append_column("score", pa.array(rows.values(), pa.float64()))
    return table.add_column(0, "subset", pa.array(["helpdesk"] * len(rows), pa.large_string()))


_GENERATORS: dict[str, Callable[[str], pa.Table]] = {"generated/nli": _nli, "generated/sts": _sts}


def _table(split: str, rows: Sequence[Sequence[str]], columns: Sequence[str]) -> pa.Table:
    return _strings([(split, *row) for row in rows], ("split", *columns))


def _strings(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    return pa.table([pa.array(column, pa.large_string()) for column in zip(*rows, strict=True)], names=list(columns))


def _joined(tables: GeneratedFaq) -> pa.Table:
    return tables.judgements.join(tables.queries, "query_id", use_threads=False).join(tables.documents, "document_id", use_threads=False)


def _source(name: str) -> GeneratedSource:
    if name not in GENERATED:
        remedy = did_you_mean(name, GENERATED, "Choose one of them.", alike=0.3)
        raise DataError(where=name, found="no generated source of that name", expected=f"one of {', '.join(GENERATED)}", remedy=remedy)
    return GENERATED[name]
