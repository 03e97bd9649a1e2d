"""Register the best encoder of a sweep as a version of a model of MLflow, with the alias `best`."""

from __future__ import annotations

import importlib.metadata
import io
import re
import warnings
from contextlib import redirect_stderr
from typing import TYPE_CHECKING

from sentdist.store.sweep import cells_by_dev
from sentdist.tracking import values
from sentdist.tracking.runs import MODEL, SweepRuns, update
from sentdist.tracking.views import model_page

if TYPE_CHECKING:
    from mlflow import MlflowClient

ALIAS = "best"
KEY = "sentdist.key"  # of the training
LIBRARIES = ("mlflow", "sentence-transformers", "transformers", "torch")


def register_best_encoder(client: MlflowClient, runs: SweepRuns) -> str | None:
    """Register the encoder that dev chooses; return `models:/NAME/VERSION`, or None if dev chose none.

    It is the best encoder on dev of the cell with the highest mean dev score; test scores are shown, not used. An encoder that has
    a version gets only the alias. Dev chooses none if no cell is complete, or the recipe has no `selection`.
    """
    runs.open(client, is_running=False)
    sweep, records = runs.sweep, runs.sweep.records(runs.store)
    cells = cells_by_dev(sweep, records)
    if not cells:
        return None
    trial, scores = cells[0].best, values.trial_metrics(cells[0].best, records)
    train = records[str(trial.train)]
    if not client.search_registered_models(f"name = '{sweep.name}'"):
        client.create_registered_model(sweep.name, description=sweep.about.strip())
    known = [version for version in client.search_model_versions(f"name = '{sweep.name}'") if version.tags.get(KEY) == train.key]
    if known:
        number = str(min(int(version.version) for version in known))
    else:
        folder = runs.store.folder(runs.store.finished(train.place))
        number = _upload(client, runs, str(folder), name=re.sub(r"[^\w-]", "_", train.label), run_id=runs.ensure(client, trial).info.run_id)
        tags = {KEY: train.key, "sentdist.trial": trial.key} | {name: f"{value:.4f}" for name, value in scores.items()}
        for tag, value in tags.items():
            client.set_model_version_tag(sweep.name, number, tag, value)
        metric = values.sweep_metric(sweep)
        test = f"\n\nOn the test sets, which were not used: {metric} {scores[metric]:.2f}." if metric in scores else ""
        client.update_model_version(sweep.name, number, f"{trial.name}, chosen on dev by {cells[0].task}.\n\n{cells[0].line}.{test}")
    if client.get_registered_model(sweep.name).aliases.get(ALIAS) != number:
        client.set_registered_model_alias(sweep.name, ALIAS, number)
    note = f"[models:/{sweep.name}/{number}]({model_page(sweep.name, number)}), alias `{ALIAS}`: {trial.name}"
    update(client, client.get_run(runs.parent), tags={MODEL: note})
    runs.summarize(client, records)
    return f"models:/{sweep.name}/{number}"


def _upload(client: MlflowClient, runs: SweepRuns, folder: str, *, name: str, run_id: str) -> str:
    """Log an encoder's folder as a model of a run and register it; return the number of its version."""
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):  # progress bars, and MLflow's lines about the registration
        warnings.simplefilter("ignore")  # of MLflow's and huggingface_hub's modules about one another
        import mlflow
        from mlflow.models import Model
        from sentence_transformers import SentenceTransformer

        mlflow.set_tracking_uri(client.tracking_uri)
        mlflow.set_registry_uri(client.tracking_uri)
        info = Model.log(
            None, mlflow.sentence_transformers, registered_model_name=runs.sweep.name, await_registration_for=0, run_id=run_id, name=name,
            model=SentenceTransformer(folder, device="cpu"),
            # inferring them takes a minute
            pip_requirements=[f"{one}=={importlib.metadata.version(one).partition('+')[0]}" for one in LIBRARIES],
        )  # fmt: skip
    return str(info.registered_model_version)
