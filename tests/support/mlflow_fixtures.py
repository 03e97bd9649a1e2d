"""A real MLflow server for tests, and sweeps whose artifacts are made up but lie in a real store."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from sentdist.corpora.rows import RowsCorpus
from sentdist.recipe.stage import Json, Stage
from sentdist.recipe.stages import Bank, Scores, Train
from sentdist.recipe.unroll import Plan
from sentdist.services.processes import free_port
from sentdist.services.servers import write_ahead
from sentdist.store.store import Artifact, ArtifactStore
from sentdist.store.sweep import sweep_record
from sentdist.tracking.runs import SweepRuns
from sentdist.tracking.tracker import Tracker
from tests.support.planning import plan_of, small_recipe
from tests.support.waiting import wait_for

STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
NUM_POINTS = 8


class MlflowServer:
    """`mlflow server` with SQLite behind it and artifacts through it, on a free port of loopback, ended by its process group."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_ahead(self.folder / "mlflow.db")
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--artifacts-destination", str(self.folder / "artifacts")]
        environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_for(
                self._is_healthy, what=f"the server, see {self.folder / 'server.log'}", seconds=240.0
            )  # it reads a lot of Python files
        except TimeoutError:
            self.stop()
            raise

    def stop(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)  # its own session: the workers die with it
            self._process.wait()
            self._process = None

    @property
    def num_requests(self) -> int:
        """How many it has answered."""
        return (self.folder / "server.log").read_text().count(' HTTP/1.1" ')

    @property
    def cpu_s(self) -> float:
        """Processor seconds of its processes until now (Linux)."""
        assert self._process is not None
        found = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[2]) == self._process.pid:  # its group
                found += int(fields[11]) + int(fields[12])
        return found / os.sysconf("SC_CLK_TCK")

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def small_sweep(name: str, *, num_phi_sets: int = 2) -> Plan:
    """Base, fine-tuning, a reported entropy encoder (which a bank shares), and rcl over φ sets: 3 + `num_phi_sets` trials."""
    sets: list[Json] = [[0.01], [0.01, 0.02], [0.01, 0.02, 0.03]]
    methods: dict[str, Json] = {
        "base": {"title": "MiniLM, untouched"},
        "fine_tuned": {"title": "Eq. 1", "objective": {"name": "info_nce", "temperature": 0.05}},
        "entropy": {"title": "Entropy encoder", "objective": {"name": "entropy", "phi": 0.01}, "select": False},
        "rcl": {"title": "RCL", "objective": {"name": "rcl", "temperature": 0.05}, "bank": "entropy", "phis": [0.01]},
    }
    sweep: dict[str, Json] = {"methods.rcl.phis": sets[:num_phi_sets]}
    return plan_of(
        small_recipe(name=name, about="Do regulators help on **small** data?", methods=methods, sweep=sweep, evaluation={"tasks": ["sts"]})
    )


def grid_sweep(name: str, *, num_trials: int) -> Plan:
    """A base and one training for each of `num_trials` − 1 learning rates; every trial but the base has a training of its own."""
    methods: dict[str, Json] = {
        "base": {"title": "MiniLM, untouched"},
        "fine_tuned": {"title": "Eq. 1", "objective": {"name": "info_nce", "temperature": 0.05}},
    }
    rates: list[Json] = [1e-6 * number for number in range(1, num_trials)]
    return plan_of(
        small_recipe(name=name, about="", methods=methods, sweep={"training.learning_rate": rates}, evaluation={"tasks": ["sts"]})
    )


def history(stage: Stage) -> list[dict[str, Json]]:
    """A learning curve that falls, with a dev score at its end."""
    start = time.time() - 60
    lines: list[dict[str, Json]] = [
        {
            "step": 5 * number,
            "loss": 2.0 / (number + 1) + int(stage.key, 16) % 7 / 50,
            "grad_norm": 1.0 + 1 / (number + 1),
            "lr": 2e-5 * (1 - number / NUM_POINTS),
            "sentences_per_s": 400.0 + number,
            "at": round(start + 5 * number, 2),
        }
        for number in range(1, NUM_POINTS + 1)
    ]
    return [*lines, {"step": 5 * NUM_POINTS, "dev_score": 80.5, "task": "stsb-dev", "at": round(start + 41, 2)}]


def make_up(stage: Stage, store: ArtifactStore, *, encoder: Path | None = None) -> Artifact:
    """Commit an artifact with plausible results; `encoder`: a sentence-transformers folder that every training is said to have made."""
    results: dict[str, Json]
    with store.staged() as folder:
        match stage:
            case RowsCorpus():
                results = {"num_rows": 10_000, "num_sentences": 28_311, "num_dropped_duplicates": 12}
            case Train():
                if encoder is not None:
                    shutil.copytree(encoder, folder, dirs_exist_ok=True)
                (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history(stage)))
                results = {
                    "num_steps": 40, "stopped_early": False, "stopping_step": None, "best_step": 40,
                    "best_dev_score": 80.5 - len(stage.banks),  # the other way round than the test scores below
                    "final_loss": 0.31, "sentences_per_s": 404.5, "num_parameters": 22_713_216,
                }  # fmt: skip
            case Bank():
                results = {"num_sentences": 28_311, "width": 384, "bytes": 21_742_848, "sentences_per_s": 512.0}
            case Scores():
                trained = isinstance(stage.encoder, Train)
                results = {
                    task: 78.0 + number / 10 + trained * (1 + len(stage.encoder.banks if isinstance(stage.encoder, Train) else ()))
                    for number, task in enumerate(STS)
                }
                results |= {"stsb.pearson": 79.5, "geometry.alignment": 0.21}
            case _:
                raise TypeError(stage.kind)
        (folder / "content.txt").write_text(stage.label)
        return store.commit(stage, folder, seconds=12.5, runtime={"workers": 2}, environment={"python": "3"}, results=results)


def drive(tracker: Tracker, stages: Iterable[Stage], store: ArtifactStore, *, encoder: Path | None = None) -> list[str]:
    """Do with a tracker what a run does; stages that the store has are passed over. Returns the warnings of the handles."""
    warnings: list[str] = []
    for stage in stages:
        if store.has(stage):
            continue
        run = tracker.begin(stage.key)
        if isinstance(stage, Train):
            run.follow(history(stage))
        artifact = make_up(stage, store, encoder=encoder)
        warnings += run.close()
        tracker.finish(artifact.record)
    return warnings


def runs_of(plan: Plan, store: ArtifactStore | None = None) -> SweepRuns:
    """The runs of a plan's sweep."""
    return SweepRuns(sweep_record(plan), {stage.key: stage for stage in plan.stages}, store or ArtifactStore("/nowhere"))
