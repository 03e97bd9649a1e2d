"""Which objectives there are, by the name a recipe uses: one file a method."""

from sentdist.learning.objectives.entropy import EntropyInfoNCE
from sentdist.learning.objectives.info_nce import InfoNCE
from sentdist.learning.objectives.rcl import RCL

OBJECTIVES = {
    "info_nce": InfoNCE,  # Eq. 1
    "entropy": EntropyInfoNCE,  # Eq. 2
    "rcl": RCL,  # Eq. 3
}
