"""How transformers' progress bars are kept out of a library that returns values and does not print."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging


@contextmanager
def without_bars() -> Iterator[None]:
    """No "Loading weights" and no "Writing model shards" inside; what the process had chosen stands again afterwards."""
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


@contextmanager
def without_reports() -> Iterator[None]:
    """No table of the weights that a checkpoint holds and the model does not, where that is meant."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
