"""A run of Ray Tune: trials in actors that only wait, what they say of their end, and Tune's own files."""

from __future__ import annotations

import base64
import logging
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray import tune

from sentdist.addresses import without_secrets
from sentdist.errors import ResourceError, StoreError, SweepStopped, named
from sentdist.execution.board.client import BoardClient
from sentdist.execution.cluster.ray_errors import cause_of
from sentdist.execution.trial_processes import TrialProcesses
from sentdist.store.scratch import scratch_folder
from sentdist.store.store import ArtifactStore

log = logging.getLogger(__name__)

# Whatever waits reserves no CPU, or trials would starve the work they wait for: two workers of one CPU each find no place on two CPUs of
# which a trial holds 0.01. Tune refuses a trial that reserves nothing at all, so it reserves a little of what is not scarce.
TRIAL_RESOURCES = {"memory": float(2**20)}

STOPPED = "sweep_stopped"  # what a trial reports when somebody has stopped the sweep
FAILURE = "failure"  # what a trial reports when a stage failed: the error, packed
TUNE = "tune"  # folder of the store with Tune's own files of each sweep and search
LOST_ACTORS = 3  # how often the process of a trial may be lost; it only waits, so another goes on where it was


def run_in_tune(
    name: str,
    store: ArtifactStore,
    trial: Callable[..., None],
    shared: Mapping[str, Any],
    config: tune.TuneConfig,
    *,
    stop: tune.Stopper,
    callbacks: Sequence[tune.Callback] = (),
) -> None:
    """Run trials until the searcher of `config` has no more; Tune's own files lie on this machine's scratch disk, then in the store.

    trial: called with its config and with what is shared by all, by name.

    Raises:
        ResourceError: something is wrong with Tune itself, such as no room for its files.
    """
    _quieten()
    scratch, processes = Path(tempfile.gettempdir()), TrialProcesses()
    try:
        with scratch_folder(scratch, "tune") as folder, processes.ended_on_leaving():
            tune.Tuner(
                tune.with_resources(tune.with_parameters(trial, **shared), TRIAL_RESOURCES),
                tune_config=config,
                run_config=tune.RunConfig(
                    name=name,
                    storage_path=str(folder),
                    verbose=0,
                    callbacks=[*callbacks, processes],
                    stop=stop,
                    failure_config=tune.FailureConfig(max_failures=LOST_ACTORS),
                ),
            ).fit()
            _keep(store, folder / name, name)
    except (OSError, tune.TuneError, EOFError) as error:
        raise ResourceError(
            where=str(scratch),
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            expected="a scratch folder in which Ray Tune can keep its own files",
            remedy="Free room there, or name another folder with TMPDIR. What is finished is kept; submit again.",
        ) from error


@contextmanager
def report_end(board: BoardClient) -> Iterator[None]:
    """In a trial's actor: report a stop or a failure, then leave the board."""
    try:
        yield
    except SweepStopped:
        tune.report({STOPPED: True})
    except Exception as error:
        tune.report({FAILURE: _packed(cause_of(error))})  # in memory: of what is raised Tune keeps the text, in a file
        raise
    finally:
        board.unregister()


def take_failure(trial: Any, result: Mapping[str, Any]) -> BaseException | None:
    """The error that a trial reports, in the driver; None if it reports another thing. Tune then does not try the trial again."""
    if FAILURE not in result:
        return None
    trial.max_failures = 0  # what it raises next is no lost process
    error: BaseException = pickle.loads(base64.b64decode(result[FAILURE]))
    return error


def lost_too_often(trial: str) -> ResourceError:
    """The error of a trial whose process is not begun once more."""
    return ResourceError(
        where=trial,
        found=f"that its process was lost {LOST_ACTORS + 1} times",
        expected="nodes that stay",
        remedy="Look at the nodes with `ray status`. What is finished is kept; submit again.",
    )


def _packed(error: BaseException) -> str:
    """An error as a value that a trial can report: it reaches the driver in memory, where a file of Tune's may find no room."""
    try:
        return base64.b64encode(pickle.dumps(error)).decode()
    except Exception:  # it holds something that cannot travel
        return base64.b64encode(pickle.dumps(RuntimeError(named(error)))).decode()


def _quieten() -> None:
    """Silence Tune, which prints its files and stack traces of failed trials: here the driver prints, and the summary has the errors."""
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    os.environ["TUNE_PRINT_ALL_TRIAL_ERRORS"] = "0"
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # it would end the sweep as if nothing had happened
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)


def _keep(store: ArtifactStore, folder: Path, name: str) -> None:
    """Copy what Tune has written of its run beside the sweep, at `tune/NAME`: `tune.Tuner.restore` and `ResultGrid` open it there.

    What cannot be copied is printed: the store has the results that count.
    """
    try:
        store.files.write_folder(folder, f"{TUNE}/{name}")
    except (OSError, StoreError) as error:
        log.warning("%s/%s/%s: Tune's own files could not be kept: %s", store.shown, TUNE, name, without_secrets(str(error)))
