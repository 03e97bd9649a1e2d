"""A sweep whose runs stand on a real server, as a person sees them there."""

from __future__ import annotations

from mlflow import MlflowClient
from mlflow.entities import Run

from sentdist.recipe.unroll import Plan
from sentdist.store.store import ArtifactStore
from sentdist.store.sweep import save_sweep, sweep_record
from sentdist.tracking.tracker import Tracker


class Tracked:
    """A finished sweep, its store, and its runs as the server shows them."""

    def __init__(self, plan: Plan, store: ArtifactStore, client: MlflowClient) -> None:
        self.plan = plan
        self.sweep = sweep_record(plan)
        self.store = store
        self.client = client

    def begin(self, uri: str) -> Tracker:
        save_sweep(self.store, self.sweep)
        tracker = Tracker(uri, self.store)
        tracker.begin_sweep(self.sweep, {stage.key: stage for stage in self.plan.stages})
        return tracker

    @property
    def experiment(self) -> str:
        found = self.client.get_experiment_by_name(self.sweep.name)
        assert found is not None
        return str(found.experiment_id)

    def runs(self, filter_string: str = "") -> list[Run]:
        return list(self.client.search_runs([self.experiment], filter_string))

    @property
    def trials(self) -> dict[str, Run]:
        return {run.info.run_name: run for run in self.runs() if "sentdist.trial" in run.data.tags}

    @property
    def parent(self) -> Run:
        (found,) = [run for run in self.runs() if "sentdist.sweep" in run.data.tags]
        return found

    def artifacts(self, run: Run, folder: str | None = None) -> set[str]:
        return {item.path for item in self.client.list_artifacts(run.info.run_id, folder)}

    def state(self) -> dict[str, object]:
        """All that a person can see of the runs."""
        return {
            f"{run.info.run_name} {run.info.run_id}": (
                (run.info.status, run.info.start_time, run.info.end_time if "sentdist.sweep" not in run.data.tags else None),
                sorted(run.data.params.items()),
                sorted(run.data.metrics.items()),
                [
                    [point.step for point in self.client.get_metric_history(run.info.run_id, name)]
                    for name in ("loss", "avg_sts")
                    if name in run.data.metrics
                ],
                run.data.tags.get("mlflow.note.content"),
                sorted(self.artifacts(run)),
            )
            for run in self.runs()
        }
