"""How much of attention's weights a training's worker holds where they are made as a product of matrices: an estimate."""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, exp, log, sqrt

# Texts of a corpus are taken to have lengths of a log-normal distribution: with 0.6 the mean of their squares is right within a factor
# of 1.35 for all columns of texts that were counted (NLI, STS, questions, Wikipedia, abstracts, answers of FAQs), cut at 512 tokens.
SPREAD = 0.6
# Bytes of a weight, counted in grouped_attention.py: what the backward pass needs, once and once more as dropout's factors; and what it
# makes of one layer after the other.
# Peaks of three steps on a CPU without kernels, MiniLM's shape, 32 texts of 200 tokens (24 of MPNet, 24 in bf16), GiB measured, estimated:
# BERT 3.72, 3.79; T5 4.29, 4.16; MPNet 2.92, 3.21; BERT in bf16 2.50, 3.74.
KEPT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2}
DIFFERENTIATED_BYTES = {"fp32": 12, "tf32": 12, "bf16": 16}


@dataclass(frozen=True, kw_only=True)
class WeightedLayers:
    """The layers of an encoder whose weights of attention are held. num_kept: those whose weights the backward pass finds again, and those
    of their dropout; 0 of a frozen encoder."""

    num_heads: int
    num_kept: int
    has_dropout: bool
    precision: str

    def sentence_bytes(self, tokens: float, *, longest: int, shortest: int = 0) -> float:
        """Of one sentence on average. tokens: of a sentence, before it is cut at `longest`. shortest: shorter ones have a kernel that holds
        no weights."""
        kept = KEPT_BYTES[self.precision] * (2 if self.has_dropout else 1) * self.num_kept
        of_a_weight = kept + DIFFERENTIATED_BYTES[self.precision]
        return of_a_weight * self.num_heads * mean_square(tokens, longest=longest, shortest=shortest)


def mean_square(tokens: float, *, longest: int, shortest: int = 0) -> float:
    """The mean of squared lengths, those up to `shortest` taken for 0 and those above `longest` for that: by the
    partial moments of a log-normal distribution. tokens: the mean of lengths."""
    if shortest >= longest:
        return 0.0
    center = log(tokens) - SPREAD**2 / 2

    def share_above(length: float, power: int) -> float:
        """Of the distribution's moment of that power."""
        return 1.0 if length == 0 else (1 + erf((center - log(length) + power * SPREAD**2) / SPREAD / sqrt(2))) / 2

    between = exp(2 * center + 2 * SPREAD**2) * (share_above(shortest, 2) - share_above(longest, 2))
    return between + longest**2 * share_above(longest, 0)
