"""What the host does for a step does not grow with its sentences: none is looked at by itself, whatever the clock of a machine says.

Counted are the instructions of Python that the package executes. 4,096 rows take 10 ms of a processor beside the model
(`python -m rayjobs.benchmarks.host_time`); with tokens, groups of lengths or rows of banks made within steps they took over 500.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import sentdist
from rayjobs.benchmarks import host_time
from sentdist.learning import bank as bank_module
from sentdist.learning.bank import FileBank
from sentdist.learning.encoder.sentence_encoder import SentenceEncoder
from sentdist.learning.encoder.tokens import Batch, TokenTable
from sentdist.learning.engine import TorchEngine
from sentdist.learning.grad_cache import micro_batches
from sentdist.learning.loop import train_steps
from sentdist.learning.optimization import Learner, Optimization
from tests.support import make
from tests.support.pretend_gpu import pretended_gpu
from tests.support.tiny_encoders import tiny_encoder

PACKAGE = str(Path(sentdist.__file__).parent)
FEW, MANY = 16, 256  # rows


def instructions(work: Callable[[], object]) -> int:
    """How many instructions of Python the package executes in this thread during a work."""
    num = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal num
        num += event == "opcode"
        return count

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return count

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
    return num


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[TokenTable, FileBank]:
    """A corpus of 2,000 sentences as tokens, and its embeddings by two encoders."""
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as small:
        for name, value in {"NUM_SENTENCES": 2000, "MEAN_TOKENS": 6, "WIDTH": 32, "NUM_ENCODERS": 2}.items():
            small.setattr(host_time, name, value)
        return TokenTable.open(host_time._write_tokens(folder)), FileBank(host_time._write_banks(folder))


def _batch(table: TokenTable, num_rows: int) -> Batch:
    ids_CM = np.random.default_rng(0).integers(0, table.num_sentences, size=(3, num_rows))
    return Batch(tokens=table.batch(ids_CM), num_columns=3, first_row=0, sentence_ids=ids_CM)


def test_a_batch_is_made_by_as_many_instructions_for_many_rows_as_for_few(stored: tuple[TokenTable, FileBank]) -> None:
    table, bank = stored
    few, many = (instructions(lambda num_rows=num_rows: bank.prepared(_batch(table, num_rows))) for num_rows in (FEW, MANY))  # type: ignore[misc]
    assert few == many < 1500


def test_a_step_of_sixteen_times_the_rows_takes_hardly_more_instructions(
    stored: tuple[TokenTable, FileBank], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, with a bank: the objective finds its rows looked up, and nobody reads a text. In fp32 attention goes length by length, of
    which there are more; a loop over the 720 further sentences would double the number."""
    table, bank = stored
    encoder = SentenceEncoder.load(tiny_encoder(tmp_path, "bert", num_hidden_layers=1))
    few, many = (bank.prepared(_batch(table, num_rows)) for num_rows in (FEW, MANY))
    for batch in (few, many):
        batch.tokens.token_ids.remainder_(30)  # which the vocabulary has
    monkeypatch.setattr(SentenceEncoder, "tokenize", lambda *_, **__: pytest.fail("a text is tokenized within a step"))
    monkeypatch.setattr(bank_module, "look_up", lambda *_, **__: pytest.fail("rows of a bank are looked up within a step"))
    objective = make.rcl(bank=bank, temperature=0.05)
    with pretended_gpu() as gpu:
        engine = TorchEngine(Learner(encoder, objective), Optimization(num_steps=4), device=gpu)
        batches = [batch.to(gpu) for batch in (few, few, many)]
        steps = train_steps(engine, objective, batches)
        next(steps)  # makes the optimizer's state
        counts = [instructions(lambda: next(steps)) for _ in range(2)]
    assert counts[1] < 1.5 * counts[0] < 15_000


def test_a_loop_over_sentences_would_be_seen() -> None:
    few, many = (instructions(lambda num=num: micro_batches([8] * num, size=4)) for num in (FEW, MANY))  # type: ignore[misc]
    assert many > 10 * few
