"""Propose new trials by the suggesters of a search, one for each method, and report their scores back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from sentdist.errors import SentdistError
from sentdist.recipe.search import Axis
from sentdist.recipe.stage import Json
from sentdist.recipe.stages import Train
from sentdist.recipe.suggestions import PlannedSearch, suggestion_text
from sentdist.store.searches import RungReached, SearchState, TrialEnded, TrialSuggested
from sentdist.text import PrintLine

MOST_REPEATS = 300  # repeated suggestions in a row after which a method has no more
CANDIDATES = 4  # suggestions among which `prefer_cheaper` chooses


class Suggester(Protocol):
    """Suggests trials of one method, see `TunedSuggester`."""

    def ask(self, name: str) -> dict[str, Json] | None: ...

    def tell(self, name: str, score: float, *, rung: int) -> None: ...

    def end(self, name: str, score: float | None, *, is_pruned: bool = False) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A suggestion that can become a trial. name: the suggester's name for it."""

    name: str
    suggestion: dict[str, Json]
    train: Train


Pick = Callable[[Sequence[Candidate]], Candidate]
MakeSuggester = Callable[[Mapping[str, Axis]], Suggester]


class Proposals:
    """The trainings of all trials, by number, and their suggesters. state: the search's growing record."""

    def __init__(self, planned: PlannedSearch, make: MakeSuggester, state: SearchState, *, print_line: PrintLine) -> None:
        self.trains: dict[int, Train] = {}
        self._planned, self._state, self._print_line = planned, state, print_line
        self._suggesters = {method: make(planned.axes(method)) for method in planned.methods}
        self._asked = dict.fromkeys(planned.methods, 0)
        self._names: dict[int, str] = {}  # under which the suggester of a trial knows it
        self._has_diverged = False

    def num_tried(self, method: str) -> int:
        """Return the number of different trainings of a method."""
        return len(self._tried(method))

    def accept(self, number: int, candidate: Candidate) -> None:
        """Note that a candidate became a trial."""
        self._names[number], self.trains[number] = candidate.name, candidate.train

    def fresh(self, method: str, pick: Pick, *, is_printed: bool = True) -> Candidate | None:
        """Return an untried suggestion of a method; None if it has no more. is_printed: whether skipped suggestions are printed."""
        found = list(islice(self._candidates(method, is_printed=is_printed), CANDIDATES if self._planned.search.prefer_cheaper else 1))
        if not found:
            return None
        chosen = pick(found)
        for other in found:
            if other is not chosen:
                self._suggesters[method].end(other.name, None)
        return chosen

    def suggest_again(self, event: TrialSuggested) -> None:
        """Repeat a recorded suggestion with its suggester."""
        number, wanted = event.number, event.suggestion
        found = self.fresh(event.method, lambda made: next((one for one in made if one.suggestion == wanted), made[0]), is_printed=False)
        if found is not None and found.suggestion == wanted:
            self.accept(number, found)
            return
        if not self._has_diverged:
            self._has_diverged = True
            self._print_line(f"trial {number}: its suggestion was made by another version; those that follow may differ, too")
        if found is not None:
            self._suggesters[event.method].end(found.name, None)
        self.trains[number] = self._planned.train(event.method, wanted)

    def learn(self, event: RungReached | TrialEnded) -> None:
        """Report a trial's score or end to its suggester."""
        name = self._names.get(event.number)
        if name is None:
            return
        trial = self._state.trials[event.number]
        suggester = self._suggesters[trial.method]
        if isinstance(event, TrialEnded):
            del self._names[event.number]
            suggester.end(name, None if event.state == "failed" else trial.dev, is_pruned=event.state == "pruned")
        elif trial.rungs[-1] is event:
            suggester.tell(name, event.dev, rung=len(trial.rungs))

    def _tried(self, method: str) -> dict[str, int]:
        """Trial numbers of this method, by the key of the training."""
        return {train.key: number for number, train in self.trains.items() if self._state.trials[number].method == method}

    def _candidates(self, method: str, *, is_printed: bool) -> Iterator[Candidate]:
        """Yield new suggestions that can be trained; end others with the suggester at once."""
        suggester, tried, given = self._suggesters[method], self._tried(method), set[str]()
        for _ in range(MOST_REPEATS):
            name = f"{method}-{self._asked[method]}"
            self._asked[method] += 1
            suggestion = suggester.ask(name)
            if suggestion is None:
                return
            try:
                train = self._planned.train(method, suggestion)
            except SentdistError as error:  # values that do not go together
                if is_printed:
                    self._print_line(f"{method}: {suggestion_text(suggestion)} cannot be trained and is left out: {error}")
                suggester.end(name, None)
                continue
            if train.key in tried or train.key in given:
                known = self._state.trials[tried[train.key]] if train.key in tried else None
                suggester.end(name, known.dev if known is not None and known.state == "finished" else None)
                continue
            given.add(train.key)
            yield Candidate(name=name, suggestion=suggestion, train=train)
