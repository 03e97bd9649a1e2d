"""Addresses of MLflow's pages, relative to the server: such a link holds behind every name and port of it."""

from __future__ import annotations

LAYOUT = "workflowType=machine_learning"  # else a new browser shows pages laid out for language-model applications


def run_page(experiment_id: str, run_id: str) -> str:
    """Page of a run."""
    return f"#/experiments/{experiment_id}/runs/{run_id}?{LAYOUT}"


def artifact_page(experiment_id: str, run_id: str, path: str) -> str:
    """Page of a run with one of its artifacts opened."""
    return f"#/experiments/{experiment_id}/runs/{run_id}/artifacts/{path}?{LAYOUT}"


def view_page(experiment_id: str, view_id: str, mode: str) -> str:
    """Page of an experiment's runs as one of its saved views shows them: a TABLE or a CHART."""
    return f"#/experiments/{experiment_id}/runs?{LAYOUT}&viewStateShareKey={view_id}&compareRunsMode={mode}"


def model_page(name: str, version: str) -> str:
    """Page of a version of a registered model."""
    return f"#/models/{name}/versions/{version}?{LAYOUT}"
