"""The time of a search for the best encoder: all of it is used and no more, however long trainings take."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from sentdist.run import tune
from sentdist.run.backend import LocalBackend
from sentdist.run.tune import Settings, Tuning

BUDGET = 480.0
DEFAULT, OTHER = Settings(method="contrastive"), Settings(method="contrastive", suggestion={"training.epochs": 3})


class Pretended(Tuning):
    """Trainings take `seconds` each by a pretended clock, whatever was expected of them."""

    def __init__(self, *, expected: dict[str, float], really: float = 1.0, chooses: Settings = DEFAULT, tried_after: float = 1e9) -> None:
        self.now, self.expected, self.really, self.chooses, self.tried_after = 0.0, expected, really, chooses, tried_after
        self.searched = 0.0
        request = SimpleNamespace(asked=SimpleNamespace(trials=None, recipe_name="mine"))
        super().__init__(
            request,
            LocalBackend(),
            store="",
            data=None,
            print_line=lambda line: None,
            budget_s=BUDGET,
            clock=lambda: self.now,  # type: ignore[arg-type]
        )

    def _first(self) -> Settings:
        self.best = self._trained(DEFAULT, [0])
        return DEFAULT

    def _trained(self, settings: Settings, seeds: Sequence[int], **_: Any) -> Any:
        before = len(self.best.trials) if self.best is not None and self.best.settings == settings else 0
        for _ in range(len(seeds) - before):
            ends = self.now + self.really * self.expected[str(settings)]
            while self.now < ends:
                self.now = min(ends, self.now + 1.0)
                self._stop_in_time(None)  # type: ignore[arg-type]
        return SimpleNamespace(settings=settings, trials=tuple(seeds))

    def _search_for(self, seconds: float) -> Any:
        spent = min(seconds, self.tried_after)
        self.now, self.searched = self.now + spent, self.searched + spent
        self._has_all_tried = spent < seconds
        return SimpleNamespace(reason=None)

    def _chosen(self, default: Settings, search: Any) -> Settings:
        return self.chooses

    def _seconds_of(self, settings: Settings) -> float:
        return self._seconds.get(str(settings), self.expected[str(settings)])

    @property
    def _scoring_s(self) -> float:
        return 5.0


def test_the_time_is_used_and_kept() -> None:
    for really, default_s, chooses, tried_after in itertools.product((0.7, 1.3), (3.0, 20.0, 150.0), (DEFAULT, OTHER), (60.0, 1e9)):
        expected = {str(DEFAULT): default_s, str(OTHER): 2.5 * default_s}
        found = Pretended(expected=expected, really=really, chooses=chooses, tried_after=tried_after)
        found.run()
        spent = found.now + found._scoring_s + tune.REPORT_S + tune.FOR_REPORT * BUDGET
        assert spent <= 1.05 * BUDGET
        assert spent >= 0.9 * BUDGET or found.searched == tried_after, "unless nothing is left to try and no seed more would end in time"
        assert found.searched >= min(tried_after, 0.2 * BUDGET)
    alone = Pretended(expected={str(DEFAULT): 455.0})
    alone.run()
    assert alone.best is not None and len(alone.best.trials) == 1, "a training that takes all the time"
