"""One Ray cluster of two CPUs and one MLflow server for all cluster tests, each with a folder of its own, ended by its handle."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.mlflow_fixtures import MlflowServer

if TYPE_CHECKING:
    from mlflow import MlflowClient

ROOT = Path(__file__).parents[2]
MARK = "SENTDIST_TEST_CLUSTER"  # every process of the cluster inherits it


class Cluster:
    """The cluster as a test handles it; this process is connected to it as a driver."""

    def __init__(self, address: str, mark: str) -> None:
        self.address = address
        self._mark = mark.encode()

    def kill_train_worker(self) -> int:
        """Take the process of one Ray Train worker away, as a fault of the machine would; returns its id."""
        return self.kill_actor("RayTrainWorker")

    def kill_actor(self, name: str) -> int:
        """Take the process of one actor of that class away; returns its id."""
        for pid in self.actors(name):
            with suppress(ProcessLookupError):  # it went away by itself meanwhile
                os.kill(pid, signal.SIGKILL)
                return pid
        raise AssertionError(f"no {name} is running")

    def actors(self, name: str) -> list[int]:
        """The ids of the processes of all actors of that class."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it went away by itself meanwhile
                is_worker = (process / "cmdline").read_bytes().startswith(f"ray::{name}".encode())
                if is_worker and self._mark in (process / "environ").read_bytes():
                    found.append(int(process.name))
        return found


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """See `Cluster`."""
    os.environ.update(RAY_AUTH_MODE="disabled", PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1")
    # Ray ends workers that idle for a second where more than so many live, actors among them; with its own number, that of the CPUs,
    # nearly every stage would import its libraries anew.
    os.environ.update(RAY_num_workers_soft_limit="8")
    # Ray looks for what workers print ten times a second, and nobody reads it here.
    os.environ.update(RAY_LOG_MONITOR_MANY_FILES_THRESHOLD="0", LOG_NAME_UPDATE_INTERVAL_S="3600")
    import ray

    os.environ[MARK] = folder = tempfile.mkdtemp(prefix="sd-ray-", dir="/tmp")  # short: paths of sockets may have 107 letters
    ray.init(
        num_cpus=2,
        num_gpus=0,
        include_dashboard=False,
        _temp_dir=folder,
        object_store_memory=300 * 2**20,
        logging_level="ERROR",
        log_to_driver=False,
    )
    try:
        yield Cluster(ray.get_runtime_context().gcs_address, folder)
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """A real MLflow server; each test uses experiments of its own."""
    server = MlflowServer(tmp_path_factory.mktemp("mlflow"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def client(server: MlflowServer) -> MlflowClient:
    """What a person sees of the server."""
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=server.uri, registry_uri=server.uri)


@pytest.fixture(scope="session")
def encoder_folder(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder as a training leaves it."""
    from sentdist.learning.encoder.sentence_encoder import SentenceEncoder

    folder = tmp_path_factory.mktemp("encoder")
    SentenceEncoder.load(tiny_encoder_dir).save(folder, base_model="tiny")
    return folder
