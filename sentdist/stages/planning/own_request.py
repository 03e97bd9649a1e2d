"""What a person's own file comes to, as `train` and `tune` ask for it: recognised, split, with its encoders looked at."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path, PurePath
from typing import Literal

from sentdist.errors import RecipeError
from sentdist.frozen import MOST_LETTERS, NAME
from sentdist.plan.corpora.own import own_section
from sentdist.plan.resolver import OwnPin
from sentdist.plan.stage import Json
from sentdist.plan.tune_recipe import TuneRequest
from sentdist.stages.planning.resolve import FileResolver

# Standard deviation of the paired difference of a trained and an untouched encoder on one held-out row, in points (MiniLM: 5 to 18), and
# how many standard errors a difference must have to be found in 4 of 5 tests at 5 %.
SPREAD = {"graded": 8.0, "pairs": 15.0, "triplets": 15.0, "faq": 15.0}
FOUND_AT = 2.8


@dataclass(frozen=True, kw_only=True)
class OwnRequest:
    """A request with the file that it is about and who has looked at it."""

    asked: TuneRequest
    pin: OwnPin
    resolver: FileResolver

    @property
    def smallest_difference(self) -> float:
        """The smallest difference from the untouched encoder, in points, that the test rows are likely to show; by rule of thumb."""
        return FOUND_AT * self.standard_error(self.pin.num_test)

    @property
    def dev_error(self) -> float:
        """The standard error of a difference of two settings on dev, in points; by the same rule."""
        return self.standard_error(self.pin.num_dev)

    def standard_error(self, num_rows: int) -> float:
        """Of a difference on so many rows."""
        return SPREAD[self.asked.shape] / sqrt(max(1, num_rows))


def own_request(
    file: str,
    *,
    command: Literal["train", "tune"],
    fields: dict[str, Json],
    encoders: Sequence[str],
    data: Path | None,
    name: str | None = None,
    hours: float = 0.0,
    trials: int | None = None,
    methods: Sequence[str] = (),
    max_length: int = 128,
) -> OwnRequest:
    """Look at a file and at the encoders. fields: what a person said of the file, as a recipe's corpus has it.

    Raises:
        RecipeError, DataError, EncoderError: what is wrong with any of them.
    """
    if name is not None and not re.fullmatch(NAME, name):
        raise RecipeError(
            where="--name", found=name, expected="small letters, digits, - and _", remedy=f"Say --name {as_name(name) or 'mine'}."
        )
    resolver = FileResolver(data_root=data, needs_hub=True)
    place, revision = place_of(file)
    corpus = fields | ({} if revision is None else {"revision": revision})
    pin = resolver.own(own_section({"kind": "own", "file": place, **corpus}, where="DATA"), where="DATA")
    held_out: dict[str, Json] = {"dev": 0.0, "test": pin.rows.test, "near": pin.rows.near}  # the test rows of a search, and no dev
    if command == "train":
        pin = resolver.own(own_section({"kind": "own", "file": place, **corpus, "held_out": held_out}, where="DATA"), where="DATA")
    named = [split_commit(one) for one in encoders]
    asked = TuneRequest(
        command=command, name=name or as_name(f"{command}-{PurePath(place).name.partition('.')[0]}"), file=place, shape=pin.rows.shape,
        num_rows=pin.num_rows, num_apart=pin.num_apart, corpus=corpus, held_out=held_out,
        encoders=named, poolings=_poolings(named, resolver), hours=hours, trials=trials, methods=methods, max_length=max_length,
    )  # fmt: skip
    return OwnRequest(asked=asked, pin=pin, resolver=resolver)


def place_of(file: str) -> tuple[str, str | None]:
    """Where the data are, as a recipe in another folder names them, and the commit of what the hub has."""
    if file.startswith("hub:"):
        return split_commit(file)
    path = Path(file).expanduser()
    return (str(path.absolute()) if path.exists() else file), None


def split_commit(name: str) -> tuple[str, str | None]:
    """A name and the commit after its @."""
    plain, _, commit = name.partition("@") if "/" in name and not Path(name).exists() else (name, "", "")
    return plain, commit or None


def as_name(text: str) -> str:
    """The nearest name that a recipe may have."""
    plain = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()  # ü is u
    return re.sub("[^a-z0-9_-]+", "-", plain)[:MOST_LETTERS].strip("-_")


def _poolings(encoders: Sequence[tuple[str, str | None]], resolver: FileResolver) -> dict[str, str]:
    """The poolings of those encoders that declare another than the mean. EncoderError for an encoder that is not there."""
    found = {}
    for checkpoint, commit in encoders:
        resolver.encoder(checkpoint, revision=commit, where="--encoder")
        if (pooling := resolver.declared_pooling(checkpoint, revision=commit)) not in (None, "mean"):
            found[checkpoint] = str(pooling)
    return found
