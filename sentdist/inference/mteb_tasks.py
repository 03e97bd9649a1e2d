"""Run tasks of mteb (Muennighoff et al. 2023, arXiv 2210.07316) on our encoders, with results in mteb's format."""

from __future__ import annotations

import hashlib
import importlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentdist.data.checked_rows import EMPTY
from sentdist.errors import DataError, named

if TYPE_CHECKING:
    from sentdist.inference.ready_encoder import LoadedEncoder

LOGGED_TOO = "The task '.*' is superseded by"  # mteb logs it and warns
Batches = Iterable[Mapping[str, list[str]]]  # of mteb's data loader


@dataclass(frozen=True, kw_only=True)
class MtebScore:
    """A task's main score × 100, mteb's mean over splits and subsets; None if it is NaN."""

    task: str
    score: float | None


class MtebEncoder:
    """A loaded encoder with mteb's `EncoderProtocol`."""

    def __init__(self, loaded: LoadedEncoder) -> None:
        self._loaded = loaded
        # The revision covers all settings that embeddings depend on, so that mteb never reuses results of other settings.
        revision = hashlib.sha256(json.dumps(loaded.facts, sort_keys=True).encode()).hexdigest()[:16]
        facts = {
            "name": f"sentdist/{Path(loaded.use.checkpoint).name}", "revision": revision, "embed_dim": loaded.width,
            "max_tokens": loaded.facts["max_length"], "framework": ["PyTorch"], "use_instructions": False,
        }  # fmt: skip
        self.mteb_model_meta = _mteb("models.model_meta").ModelMeta.create_empty(overwrites=facts)

    def encode(self, inputs: Batches, **options: object) -> np.ndarray:
        """Return (S, D) embeddings of all texts; equal texts are embedded once. Options (task, split, prompt) are ignored."""
        texts = [text if text.strip() else EMPTY for batch in inputs for text in batch["text"]]
        unique = list(dict.fromkeys(texts))
        row = {text: number for number, text in enumerate(unique)}
        return self._loaded.embed(unique)[[row[text] for text in texts]]

    def similarity(self, embeddings1: np.ndarray, embeddings2: np.ndarray) -> Any:
        """Return the cosines of all pairs."""
        return _mteb("similarity_functions").cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: np.ndarray, embeddings2: np.ndarray) -> Any:
        """Return the cosines row by row."""
        return _mteb("similarity_functions").pairwise_cos_sim(embeddings1, embeddings2)


def mteb_tasks(names: Sequence[str]) -> list[Any]:
    """Return mteb's tasks by name: tasks, benchmarks, or MODULE:CLASS of a user's task; commas separate several.

    Raises:
        DataError: mteb is not installed, a name is unknown, or a task needs more than texts.
    """
    _mteb()  # first, since a user's module needs it
    found = [task for name in names for task in _tasks_of(name)]
    for task in found:
        if set(task.metadata.modalities) != {"text"}:
            raise DataError(
                where=f"mteb task {task.metadata.name}", found=", ".join(task.metadata.modalities), expected="texts",
                remedy="Choose tasks with texts only.",
            )  # fmt: skip
    return found


def score_on_mteb(loaded: LoadedEncoder, tasks: Sequence[Any], out: Path) -> list[MtebScore]:
    """Have mteb score an encoder; write `out`/results.

    Tasks that have results for these settings are not run again.

    Raises:
        DataError: a task's data is unavailable. EncoderError: as `LoadedEncoder.embed`.
    """
    mteb = _mteb()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=LOGGED_TOO)
            found = mteb.evaluate(MtebEncoder(loaded), tasks, cache=mteb.ResultCache(out), co2_tracker=False, show_progress_bar=False)
    except OSError as error:
        raise DataError(
            where="mteb", found=named(error), expected="the data of its tasks, from the Hugging Face Hub or its cache",
            remedy="Check the network, HF_HOME and HF_HUB_OFFLINE.",
        ) from error  # fmt: skip
    scores = {result.task_name: 100.0 * float(result.get_score()) for result in found.task_results}
    return [MtebScore(task=name, score=None if np.isnan(score) else score) for name, score in scores.items()]


def _tasks_of(names: str) -> list[Any]:
    """The tasks of one or more names; benchmarks are listed only if needed, since mteb then makes all of their tasks."""
    parts = [part.strip() for part in names.split(",")]
    try:
        return [_named(part) for part in parts]
    except DataError:
        benchmarks = {benchmark.name for benchmark in _mteb().get_benchmarks()}
        if names in benchmarks:  # some have commas in their names
            parts = [names]
        return [task for part in parts for task in (_mteb().get_benchmark(part).tasks if part in benchmarks else [_named(part)])]


def _named(name: str) -> Any:
    if ":" in name:
        return _own(name)
    try:
        return _mteb().get_task(name)
    except KeyError as error:
        raise DataError(
            where="--mteb", found=f'"{name}" ({str(error.args[0]).removeprefix("KeyError: ")})',
            expected="a task or a benchmark of mteb, or MODULE:CLASS of your own task", remedy="`mteb available-tasks` lists them.",
        ) from None  # fmt: skip


def _own(name: str) -> Any:
    module, _, cls = name.partition(":")
    base = _mteb("abstasks").AbsTask
    try:
        found = getattr(importlib.import_module(module), cls)
    except (ImportError, AttributeError) as error:
        raise DataError(
            where=f"mteb task {name}", found=named(error), expected="a module that can be imported, with that class",
            remedy="Correct the name, or add its folder to PYTHONPATH.",
        ) from error  # fmt: skip
    if not (isinstance(found, type) and issubclass(found, base)):
        raise DataError(where=f"mteb task {name}", found=repr(found), expected="a subclass of mteb's AbsTask", remedy="Derive it.")
    return found()


def _mteb(module: str | None = None) -> Any:
    """The package mteb, or one of its modules."""
    try:
        return importlib.import_module("mteb" if module is None else f"mteb.{module}")
    except ModuleNotFoundError as error:
        if error.name != "mteb":
            raise
        raise DataError(
            where="--mteb", found="no package mteb", expected="mteb, an optional extra", remedy="pip install 'sentdist[mteb]'"
        ) from None
