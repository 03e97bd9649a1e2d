"""What is known of GPUs before one is at hand, by the names that Ray tells (`accelerator_type`) and people write."""

from __future__ import annotations

from dataclasses import dataclass

# Compute capability of A100 and RTX 30: the first with products in TensorFloat-32 and in bfloat16, and with FlashAttention 2.
AMPERE = (8, 0)

SHARES = "a part up to 1, or a whole number, as Ray shares GPUs out"  # GPUs of one worker


def is_share(gpus: float) -> bool:
    """Whether Ray can give a worker so many; see SHARES."""
    return gpus <= 1 or not gpus % 1


@dataclass(frozen=True, kw_only=True)
class GpuKind:
    """A kind of GPU; None: not known here.

    gib: its memory in GiB, of a kind that is sold in several sizes the smallest. peak: dense TFLOP/s of its tensor cores in bf16 (of V100
    and T4 in fp16), as its maker prints them. is_old: made before Ampere.
    """

    gib: float | None = None
    peak: float | None = None
    is_old: bool = False


GPUS = {
    "B200": GpuKind(gib=178, peak=2250),
    "H200": GpuKind(gib=140, peak=989),
    "H100": GpuKind(gib=79, peak=989),
    "H20": GpuKind(gib=95),
    "A100": GpuKind(gib=39.5, peak=312),
    "A100-40G": GpuKind(gib=39.5),
    "A100-80G": GpuKind(gib=79),
    "L40S": GpuKind(gib=44, peak=362),
    "RTX4090": GpuKind(peak=165),
    "L4": GpuKind(gib=22, peak=121),
    "A10G": GpuKind(gib=22, peak=70),
    "V100": GpuKind(gib=16, peak=125, is_old=True),
    "T4": GpuKind(gib=14.5, peak=65, is_old=True),
    "P100": GpuKind(gib=12, is_old=True),
    "P4": GpuKind(gib=7.5, is_old=True),
    "K80": GpuKind(gib=11, is_old=True),
}
