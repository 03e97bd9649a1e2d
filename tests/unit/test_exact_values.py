"""Exact results of small pure functions in several packages."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from sentdist.cli.application import print_traceback
from sentdist.errors import DataError, EncoderError
from sentdist.evaluation.classification import check_folds
from sentdist.kernels import flat_attention
from sentdist.learning.encoder.find_checkpoint import PACKAGED_ENCODERS
from sentdist.learning.precision import float32_products
from sentdist.objectives.auxiliary import Auxiliary
from sentdist.recipe.schema import recipe_schema
from sentdist.report.search import optimism_sentences
from sentdist.run.deepspeed_engine import can_run_ahead
from sentdist.run.events import StageEvent
from sentdist.run.progress import SweepProgress
from sentdist.stages.resolve import FileResolver
from sentdist.tasks.classification import ClassificationTask


def test_folds_need_each_label() -> None:
    labels = np.array(["a"] * 4 + ["b"] * 10)
    check_folds(labels, 4, nested=False, where="task")
    with pytest.raises(DataError) as refused:
        check_folds(labels, 4, nested=True, where="task")  # an inner fold may have three of four rows
    assert refused.value.found == "4 of 14 rows labelled 'a'" and refused.value.expected.startswith("6 rows")


def test_channels_add_up_to_the_width() -> None:
    objective = Auxiliary(channels=(20, 12))
    assert objective.mismatch_of_encoder(pooling="mean", width=32, has_mask_token=True) is None
    wrong = objective.mismatch_of_encoder(pooling="mean", width=30, has_mask_token=True)
    assert wrong is not None and wrong.found == "20 + 12 = 32" and wrong.expected.endswith("width, 30")


def test_columns_of_classification_are_embedded_apart() -> None:
    task = ClassificationTask(name="t", source="s", revision="r", columns=("one", "two"))
    assert task.num_encoded(10) == 20


def test_only_plain_gpus_run_ahead() -> None:
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert [can_run_ahead(gpu, zero_stage=0), can_run_ahead(gpu, zero_stage=1), can_run_ahead(cpu, zero_stage=0)] == [True, False, False]


def test_kernels_need_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_attention, "_has_triton", lambda: False)
    assert flat_attention.why_kernels_unavailable(torch.device("cuda")) == "Triton is not installed"


def test_progress_of_a_stage_is_its_share_of_steps() -> None:
    progress = SweepProgress({"k": 1.0}, clock=lambda: 0.0)
    progress.line(StageEvent(key="k", kind="train", label="rcl", what="step", step=3, num_steps=4, loss=0.5))
    assert (progress.running["k"].done, progress.running["k"].said) == (0.75, "step 3/4, loss 0.5000")


def test_optimism_is_unknown_for_one_seed() -> None:
    one, two = (SimpleNamespace(methods=(), num_seeds=seeds) for seeds in (1, 2))
    assert "one seed" in "".join(optimism_sentences(one)) and list(optimism_sentences(two)) == []  # type: ignore[arg-type]


def test_a_traceback_hides_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    error = ValueError("s3://key:hidden@host/bucket")
    print_traceback(ValueError, error, None)
    shown = capsys.readouterr().err
    assert "ValueError" in shown and "host/bucket" in shown and "hidden" not in shown


def test_a_plain_file_is_pinned_without_a_note(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "pairs.csv").write_text("anchor,positive\na,b\nc,d\n")
    resolver = FileResolver(data_root=tmp_path / "data")
    pin = resolver.source("pairs", split=None, revision=None, columns=("anchor", "positive"), where="corpus")
    assert pin.num_rows == 2 and list(resolver.notes) == []


def test_a_packaged_encoder_has_no_revision(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="revision"):
        FileResolver(data_root=tmp_path).encoder(next(iter(PACKAGED_ENCODERS)), revision="0" * 40, where="encoder")


def test_float32_products_have_their_default_precision_inside() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with float32_products():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_corpus_may_be_like_another() -> None:
    corpora: Any = recipe_schema()["properties"]["corpora"]  # type: ignore[call-overload, index]
    by_name = list(corpora.get("patternProperties", {}).values())
    sections = by_name if by_name else [corpora["additionalProperties"]]
    assert all(section["anyOf"][1]["required"] == ["like"] for section in sections)
