"""Tables of results in which no system is better than another, made up: what tests of significance are calibrated on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Luck = Literal["normal", "skewed", "bimodal", "collapse"]
COLLAPSING, DEPTH = 0.1, 10.0  # one training in ten falls by ten standard deviations


@dataclass(frozen=True, kw_only=True)
class NullModel:
    """Tables of `num_rows` systems and a baseline, over `num_seeds` trainings and `num_items` test items, all equally good in truth.

    items_over_seeds: standard error of a difference that comes from the drawing of items, over that from the drawing of seeds.
    group_size: items that belong together, such as pairs with a common sentence; within_group: their correlation.
    luck: how the scores of trainings are spread; shared_luck: correlation of the luck of one seed in two systems.
    interaction: share of a training's variance that another test set would have given it otherwise.
    uneven: every second row's trainings vary so many times as much. ties: items are right or wrong, no more.
    is_fixed: the baseline is an untouched checkpoint, without seeds. gain: of the last row alone, in standard errors of its difference.
    """

    num_rows: int = 1
    num_seeds: int = 3
    num_items: int = 200
    items_over_seeds: float = 1.0
    group_size: int = 1
    within_group: float = 0.5
    luck: Luck = "normal"
    shared_luck: float = 0.0
    interaction: float = 0.25
    uneven: float = 1.0
    ties: bool = False
    is_fixed: bool = False
    gain: float = 0.0

    @property
    def groups(self) -> NDArray[np.int64]:
        """(I,) the group of each item."""
        return np.arange(self.num_items) // self.group_size

    def tables(self, count: int, generator: np.random.Generator, *, at_once: int = 64) -> Iterator[NDArray[np.float64]]:
        """(R, K + 1, N, I) what each training of each system gives each item, `at_once` tables at a time, the baseline first.

        A score is the mean over items. A fixed baseline has the same values in all places of its seeds.
        """
        for start in range(0, count, at_once):
            yield self._tables(min(at_once, count - start), generator)

    def _tables(self, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        shape = (count, self.num_rows + 1, self.num_seeds)
        spread_K = np.where(np.arange(self.num_rows + 1) % 2 == 1, self.uneven, 1.0)[:, None]
        luck = np.sqrt(self.shared_luck) * self._luck((count, 1, self.num_seeds), generator)
        luck = (luck + np.sqrt(1 - self.shared_luck) * self._luck(shape, generator)) * spread_K
        seed_error = np.sqrt((1.0 if self.is_fixed else 2.0 * (1 - self.shared_luck)) / self.num_seeds)
        per_item = self.items_over_seeds * seed_error / np.sqrt(2.0)
        groups = self.groups
        num_groups = int(groups[-1]) + 1
        within = self.within_group if self.group_size > 1 else 0.0
        of_mean = within / num_groups + (1 - within) / self.num_items
        common = generator.normal(size=(count, 1, 1, self.num_items))
        in_group = generator.normal(size=(count, self.num_rows + 1, 1, num_groups))[..., groups]
        own = generator.normal(size=(count, self.num_rows + 1, 1, self.num_items))
        items = (np.sqrt(within) * in_group + np.sqrt(1 - within) * own) * per_item / np.sqrt(of_mean)
        noise = np.sqrt(self.interaction * self.num_items) * generator.normal(size=(*shape, self.num_items)) * spread_K[..., None]
        trained = np.sqrt(1 - self.interaction) * luck[..., None] + noise
        if self.is_fixed:
            trained[:, 0] = 0.0
        values = common + items + trained
        values[:, -1] += self.gain * seed_error * np.sqrt(1 + self.items_over_seeds**2)
        if self.ties:
            values = np.where(values > 0, 100.0, 0.0)
        return values

    def _luck(self, shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.float64]:
        """Of variance 1 and mean 0, but for `collapse`: there the trainings that hold are so spread around 0."""
        if self.luck == "normal":
            return generator.normal(size=shape)
        if self.luck == "skewed":
            return 1.0 - generator.exponential(size=shape)
        if self.luck == "bimodal":
            return generator.choice([-1.0, 1.0], size=shape)
        return generator.normal(size=shape) - DEPTH * (generator.random(size=shape) < COLLAPSING)
