"""In what pieces gradients, and with ZeRO weights, travel between workers: engines keep to it, estimates of their memory count it.

Loads no torch.
"""

from __future__ import annotations

BUCKET_BYTES = 25 * 1024 * 1024  # of gradients, as DDP has it: smaller ones leave earlier, larger ones use the network better
BUCKET_NUMBERS = BUCKET_BYTES // 4  # DeepSpeed's own 500 million are 2 GB, more than any gradient of an encoder that is trained here
# Of a table of word embeddings rows travel alone, up to so large a part; beyond, to take them out and to put them back costs what it saves.
MOST_ROWS = 0.5
# Parameters that ZeRO 3 holds whole at a time, and does not let go between two uses. DeepSpeed's own thousand million is more than nearly
# all encoders have: it would never let any go.
MOST_LIVE = 50_000_000
