"""Which objectives there are, by the name a recipe uses: one file a method."""

from sentdist.learning.objectives.auxiliary import Auxiliary
from sentdist.learning.objectives.entropy import EntropyInfoNCE
from sentdist.learning.objectives.info_nce import InfoNCE
from sentdist.learning.objectives.masked_lm import MaskedLM
from sentdist.learning.objectives.rcl import RCL, Regulators
from sentdist.learning.objectives.regression import Regression
from sentdist.learning.objectives.relational import Relational
from sentdist.learning.objectives.supmpn import SupMPN
from sentdist.learning.objectives.weighted_sum import WeightedSum

OBJECTIVES = {
    "auxiliary": Auxiliary,  # tags and words from channels of their own
    "mlm": MaskedLM,
    "info_nce": InfoNCE,  # RCL, Eq. 1
    "entropy": EntropyInfoNCE,  # RCL, Eq. 2
    "rcl": RCL,  # RCL, Eq. 3
    "regulators": Regulators,  # RCL, Eq. 3 without its first term
    "supmpn": SupMPN,  # Section 4.1 of its paper
    "rse": Relational,  # RSE, Eq. 1 and 2
    "regression": Regression,  # Translated ReLU, Smooth K2 and their baselines
    "sum": WeightedSum,
}
