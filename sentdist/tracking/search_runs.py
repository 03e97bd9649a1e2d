"""The trials of a search as runs on a server: settings, dev scores rung by rung, how each ended, and pages that show them together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sentdist.errors import counted
from sentdist.palette import colors_of
from sentdist.plan.dotted import short_names
from sentdist.plan.search import Search
from sentdist.plan.stage import Json
from sentdist.store.searches import Ended, SearchRecord, SearchTrial, Suggested
from sentdist.table_text import markdown_link, markdown_table, markdown_text
from sentdist.tracking.figures import shown
from sentdist.tracking.run_update import RunUpdate
from sentdist.tracking.server import (
    NOTE,
    PARENT,
    RunIdentity,
    all_runs,
    at_once,
    create_run,
    ensure_experiment,
    ensure_run,
    view_page,
)
from sentdist.tracking.views import View, search_views

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

SEARCH = "sentdist.search"  # on the run of the whole search; its trials have the next two
OF, TRIAL = "sentdist.search_of", "sentdist.search_trial"
METHOD, STATE, REASON, COLOR = "sentdist.search_method", "sentdist.state", "sentdist.reason", "mlflow.runColor"
PUBLISHED = "sentdist.published"  # set last: how much of the trial stands on its run
# Pruned is a way to end well: the scheduler did what it is for. The tag, a column of the views, says which runs it ended.
STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "failed": "FAILED"}
MOST_LINES = 20


@dataclass(frozen=True)
class SearchRuns:
    """What a record says of a search, brought to a server; doing it twice changes nothing. Methods may raise whatever the client raises."""

    record: SearchRecord

    @property
    def views(self) -> tuple[View, ...]:
        """A table of all trials, and parallel coordinates of each method that has fields."""
        fields = {self._title(method): self._columns(method) for method in self.record.methods}
        return search_views(fields, names={self._title(method): method for method in self.record.methods})

    def pages(self, experiment: str) -> dict[str, str]:
        """Name of a view -> its page, relative to the server."""
        return {view.name: view_page(experiment, view.id, view.mode) for view in self.views}

    def publish(self, client: MlflowClient) -> str:
        """Write all trials; returns the id of the experiment."""
        record = self.record
        experiment = ensure_experiment(client, record.name, {"mlflow.experimentKind": "custom_model_development"})
        tags = dict(view.tag(place + 100) for place, view in enumerate(self.views))  # behind those of a sweep
        there = client.get_experiment(experiment).tags
        if NOTE not in there:  # the sweep of its finalists writes a longer one
            tags[NOTE] = markdown_text(record.recipe.get("about") or "No `about` in the recipe.")
        for tag, value in tags.items():
            if there.get(tag) != value:
                client.set_experiment_tag(experiment, tag, value)
        started_ms = int(1000 * record.events[0].at)
        parent = ensure_run(
            client, experiment, name=f"search {record.name}", identity=(SEARCH, record.identity), tags={}, started_ms=started_ms
        )
        found = self._runs(client, experiment)
        missing = [trial for trial in record.trials if trial.number not in found]
        at_once(lambda trial: self._make(client, experiment, parent, trial), missing)
        if missing:
            found = self._runs(client, experiment)
        left = [trial for trial in record.trials if found[trial.number].data.tags.get(PUBLISHED) != self._stamp(trial)]
        at_once(lambda trial: self._update(found[trial.number], trial).send(client), left)
        update = RunUpdate(parent)
        update.tags({NOTE: self._note(experiment)})
        update.figures(self._bests, int(1000 * record.events[-1].at), step=len(record.trials))
        if record.reason is not None:
            update.end("FINISHED", int(1000 * record.events[-1].at))
        update.send(client)
        return experiment

    def _runs(self, client: MlflowClient, experiment: str) -> dict[int, Run]:
        """By number of the trial; of two that were made at once the older one stays."""
        mine = f"tags.`{OF}` = '{self.record.identity}'"
        found: dict[int, Run] = {}
        for run in sorted(all_runs(client, experiment, mine), key=lambda run: (run.info.start_time, run.info.run_id)):
            number = run.data.tags.get(TRIAL)
            if number is None:
                continue
            if int(number) in found:
                client.delete_run(run.info.run_id)
            else:
                found[int(number)] = run
        return found

    def _make(self, client: MlflowClient, experiment: str, parent: Run, trial: SearchTrial) -> None:
        tags = {PARENT: parent.info.run_id, OF: self.record.identity, METHOD: trial.method, COLOR: self._colors[trial.method]}
        given: RunIdentity = {
            "name": f"{self._title(trial.method)} · trial {trial.number}",
            "identity": (TRIAL, str(trial.number)),
            "tags": tags,
        }
        create_run(client, experiment, started_ms=int(1000 * self._began[trial.number]), **given)

    def _update(self, run: Run, trial: SearchTrial) -> RunUpdate:
        update = RunUpdate(run)
        update.parameters({"method": trial.method, "trial": str(trial.number), **self._parameters(trial)})
        ended = self._ended.get(trial.number)
        update.curve([("dev_score", shown(rung.dev), int(1000 * rung.at), rung.sentences) for rung in trial.rungs])
        if trial.rungs:
            last = trial.rungs[-1]
            numbers = {"best_dev_score": last.dev, "share_trained": last.share, "paid_s": trial.paid_s}
            counts = {"sentences": float(last.sentences), "paid_sentences": float(trial.paid_sentences)}
            update.figures({name: shown(value) for name, value in numbers.items()} | counts, int(1000 * last.at), step=len(trial.rungs))
        update.tags({STATE: trial.state, NOTE: self._trial_note(trial), **({REASON: trial.error} if trial.error else {})})
        if trial.state != "running":
            update.end(STATUS[trial.state], None if ended is None else int(1000 * ended))
        elif self.record.reason is not None:  # the search ended without it
            update.end("KILLED")
        update.tags({PUBLISHED: self._stamp(trial)})
        return update

    def _stamp(self, trial: SearchTrial) -> str:
        """What of a trial its run shows."""
        return f"{trial.state} {len(trial.rungs)}{' of a search that is over' if trial.state == 'running' and self.record.reason else ''}"

    def _parameters(self, trial: SearchTrial) -> dict[str, str]:
        """By short names; of fields on a logarithmic scale also the logarithm, for MLflow's axes know no other scale."""
        short = self._short
        found = {short[path]: value_text(value) for path, value in trial.suggestion.items()}
        logs = {
            f"log10 {short[path]}": f"{math.log10(value):.3f}"
            for path, value in trial.suggestion.items()
            if self._search.space[path].log is not None and isinstance(value, int | float)
        }
        return found | logs

    def _columns(self, method: str) -> list[str]:
        """Parameters that parallel coordinates show."""
        return [
            f"log10 {self._short[path]}" if self._search.space[path].log is not None else self._short[path]
            for path in self.record.methods[method]
        ]

    def _trial_note(self, trial: SearchTrial) -> str:
        words = {
            "finished": "ran to its end", "running": "has not ended",
            "pruned": f"was pruned at {100 * trial.rungs[-1].share:.0f} % of its training, which is no failure" if trial.rungs else "was pruned",
            "failed": f"failed: {markdown_text(trial.error or 'for a reason that nobody noted')}",
        }  # fmt: skip
        rows = [(f"{100 * rung.share:g} %", f"{rung.dev:.2f}", f"{rung.sentences:,}") for rung in trial.rungs]
        table = markdown_table(("share", "dev score", "sentences"), rows) if rows else ""
        settings = ", ".join(f"{self._short[path]} {value_text(value)}" for path, value in trial.suggestion.items())
        return "\n\n".join(
            filter(
                None,
                [
                    f"Trial {trial.number} of the search {markdown_text(self.record.name)}, {markdown_text(settings)}: {words[trial.state]}.",
                    table,
                ],
            )
        )

    def _note(self, experiment: str) -> str:
        record = self.record
        states = [(state, sum(trial.state == state for trial in record.trials)) for state in ("finished", "pruned", "failed", "running")]
        said = ", ".join(f"{count} {state}" for state, count in states if count)
        over = f"It is over: {markdown_text(record.reason)}." if record.reason else "It is not over."
        links = " · ".join(markdown_link(name, page) for name, page in self.pages(experiment).items())
        best = sorted((trial for trial in record.trials if trial.state == "finished"), key=lambda trial: -(trial.dev or 0.0))[:MOST_LINES]
        settings = [
            ", ".join(f"{self._short[path]} {value_text(value)}" for path, value in trial.suggestion.items()) or "as the recipe says"
            for trial in best
        ]
        rows = [
            (markdown_text(f"{self._title(trial.method)} · trial {trial.number}"), markdown_text(text), f"{trial.dev:.2f}")
            for trial, text in zip(best, settings, strict=True)
        ]
        table = markdown_table(("trial", "settings", "dev score"), rows) if rows else ""
        return "\n\n".join(filter(None, [f"**{counted(len(record.trials), 'trial')}: {said}.** {over}", links, table]))

    @property
    def _bests(self) -> dict[str, float]:
        scores = [trial.dev for trial in self.record.trials if trial.state == "finished" and trial.dev is not None]
        return {"best_dev_score": shown(max(scores))} if scores else {}

    def _title(self, method: str) -> str:
        methods = self.record.recipe["methods"]
        own = methods.get(method) if isinstance(methods, dict) else None
        return str((own.get("title") if isinstance(own, dict) else None) or method)

    @cached_property
    def _short(self) -> Mapping[str, str]:
        return short_names(self.record.methods.values())

    @cached_property
    def _search(self) -> Search:
        return Search.model_validate(self.record.recipe["search"])

    @cached_property
    def _colors(self) -> dict[str, str]:
        return colors_of(self.record.methods)

    @cached_property
    def _began(self) -> dict[int, float]:
        return {event.number: event.at for event in reversed(self.record.events) if isinstance(event, Suggested)}

    @cached_property
    def _ended(self) -> dict[int, float]:
        return {event.number: event.at for event in self.record.events if isinstance(event, Ended)}


def value_text(value: Json) -> str:
    """A value of the space as a parameter."""
    if isinstance(value, list | tuple):
        return "{" + ", ".join(map(value_text, value)) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)
