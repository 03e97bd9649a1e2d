"""What the trainings of a cell of a table have in common, read from their records: by it papers find their rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from sentdist.plan.stage import Json


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Fields of a training's record and of those beside it. goes_on: from another training's encoder. view: how its embeddings are scored.
    encoder, training: what it started from and how it was optimized. chosen_on_test: tasks that chose its weights and
    are scored, too. start: the training that it goes on from; None: none, or its record is gone.

    corpus, corpus_kind: of its corpus; {} and None where its record is gone.
    """

    objective: dict[str, Json]
    goes_on: bool
    corpus_kind: str | None
    corpus: dict[str, Json]
    view: dict[str, Json]
    encoder: dict[str, Json] = field(default_factory=dict)
    training: dict[str, Json] = field(default_factory=dict)
    chosen_on_test: tuple[str, ...] = ()
    start: Trained | None = None

    @property
    def flattered(self) -> str:
        """What was chosen by the very test sets that are scored; "" for nothing."""
        relations = self.view.get("relations")
        parts = (
            f"weights chosen by {' and '.join(self.chosen_on_test)}, which are scored" if self.chosen_on_test else "",
            "relation chosen by the test" if isinstance(relations, dict) and relations.get("combine") == "best" else "",
        )
        return "; ".join(part for part in parts if part)

    @property
    def told(self) -> str:
        """What a reader must know to compare a row with a printed one."""
        name = str(self.encoder.get("checkpoint", "")).rpartition("/")[2]
        parts = (
            name,
            str(self.encoder.get("pooling", "")),
            *(f"{word} {self.training[key]}" for key, word in _TOLD if key in self.training),
            self.flattered,
        )
        return ", ".join(part for part in parts if part)


_TOLD = (("batch_size", "batch"), ("epochs", "epochs"))


@dataclass(frozen=True, kw_only=True)
class Untouched:
    """Fields of an encoder that was scored as it is, and of how its embeddings were read."""

    encoder: dict[str, Json]
    view: dict[str, Json]


@dataclass(frozen=True, kw_only=True)
class CellFacts:
    """What the trainings of a cell have in common, read from their records."""

    objective: str | None = None  # None: untouched
    phis: tuple[float, ...] = ()  # of its bank, or its own
    batch_size: int | None = None
    attention_dropout: float | None = None
    drophead: float = 0.0
    corpus: str | None = None  # its source; the first of several
    works: tuple[str, ...] = ()  # keys of the works that the objective and its terms rest on
    trained: Trained | None = None  # None: untouched
    untouched: Untouched | None = None  # None: trained, or a floor without an encoder

    @property
    def num_regulators(self) -> int:
        return 2 * len(self.phis) if self.objective == "rcl" else 0


def terms_of(objective: dict[str, Json]) -> list[dict[str, Json]]:
    """The summands of a recorded objective; itself where it is no sum."""
    return [mapping(mapping(term)["objective"]) for term in items(objective["terms"])] if objective["name"] == "sum" else [objective]


def mapping(value: Json) -> dict[str, Json]:
    assert isinstance(value, dict)
    return value


def items(value: Json) -> list[Json]:
    assert isinstance(value, list)
    return value


def numbers(value: Json) -> tuple[float, ...]:
    """The number alone; empty for what is none."""
    return (float(value),) if isinstance(value, int | float) else ()
