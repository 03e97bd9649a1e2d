"""Keys: what counts, what is refused, and what a key survives."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import ConfigDict, ValidationError

from sentdist.corpora.rows import RowsCorpus
from sentdist.objectives.info_nce import InfoNCE
from sentdist.recipe.specs import EncoderSpec, Stopping, Training
from sentdist.recipe.stage import Stage
from sentdist.recipe.stages import Bank, Train


class Soup(Stage):
    """A stage for tests."""

    kind: ClassVar[str] = "soup"
    revision: ClassVar[int] = 1
    salt: float = 1.0
    bowls: tuple[int, ...] = ()
    stock: Stage | None = None


class SaltierSoup(Soup):
    revision: ClassVar[int] = 2


class Colour(enum.Enum):
    RED = "red"


class Anything(Stage):
    """Takes any field value, so that the canonical form itself is what refuses."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=True)
    kind: ClassVar[str] = "anything"
    revision: ClassVar[int] = 1
    value: object


CORPUS = RowsCorpus(source="nli/triplets", source_revision="r")
ENCODER = EncoderSpec(checkpoint="minilm-l6", revision="r")


def _train(**changes: object) -> Train:
    return Train.model_validate({"encoder": ENCODER, "corpus": CORPUS, "objective": InfoNCE(), "training": Training(), "seed": 0} | changes)


def test_every_field_and_the_revision_count() -> None:
    for changes in [
        {"seed": 1},
        {"objective": InfoNCE(hard_negatives=False)},
        {"training": Training(precision="bf16")},
        {"stopping": Stopping()},
        {"corpus": RowsCorpus(source="nli/triplets", source_revision="another")},
        {"start": _train(seed=9)},
    ]:
        assert _train(**changes).key != _train().key
    assert _train().key == _train().key and len(_train().key) == 16 and SaltierSoup().key != Soup().key
    soup = Soup()
    assert soup.model_copy(update={"salt": 2.0}).key == Soup(salt=2.0).key != soup.key == soup.model_copy().key


def test_a_value_has_one_spelling_or_is_refused_by_the_name_of_its_field() -> None:
    assert Soup(salt=1).key == Soup(salt=1.0).key  # type: ignore[arg-type]
    assert Soup(salt=-0.0).key == Soup(salt=0.0).key and Soup(salt=5e-05).key == Soup(salt=0.00005).key
    plain = [None, True, 1, 0.5, "text", Colour.RED, ("a", (1, 2)), InfoNCE(), CORPUS]
    assert len({Anything(value=value).key for value in plain}) == len(plain), "true and one are two values"
    for value in [float("nan"), Path("/somewhere"), [1, 2], object()]:
        with pytest.raises(TypeError, match=r"anything\.value"):
            _ = Anything(value=value).key


def test_a_bank_without_its_objective_is_refused() -> None:
    with pytest.raises(ValidationError, match="uses no bank"):
        _train(banks=(Bank(encoder=_train(), corpus=CORPUS),))
