"""In what pieces gradients travel between workers: what engines keep to, and estimates of their memory count. Loads no torch."""

from __future__ import annotations

BUCKET_BYTES = 25 * 1024 * 1024  # at ZeRO stage 0, as DDP has it: smaller ones leave earlier, larger ones use the network better
MOST_AT_ONCE = 500_000_000  # numbers, at ZeRO stages 1 to 3, as DeepSpeed has it
