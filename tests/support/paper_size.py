"""The size of the papers' data and encoders, and what a plan of that size costs."""

from __future__ import annotations

from sentdist.plan.recipe import load_recipe
from sentdist.plan.stages import Bank, Train
from sentdist.plan.unroll import Pin, Plan, unroll
from tests.support.planning import RECIPES, FixedResolver

ROWS = {  # as the papers, or the data's own pages, count them
    "nli/triplets": 275_601, "nli/snli": 549_367, "nli/mnli": 392_702, "pairs/qqp_duplicates": 149_000, "text/flickr30k_captions": 158_915,
    "pairs/paranmt": 5_000_000, "pairs/qnli": 104_743, "text/wiki": 1_000_000, "sts/stsb": 5_749, "sts/sick": 4_500,
}  # fmt: skip
MILLIONS = {"bert-base": 110, "bert-large": 335, "roberta-base": 125, "roberta-large": 355}  # of parameters
TOKENS = 20  # of a sentence of NLI and STS, special ones included
FLOPS = 120e12  # a second, that an H100 keeps up on sentences this short: an assumption


class PaperResolver(FixedResolver):
    """Planning alone: every name has the size that the papers say, nothing is looked up."""

    def source(self, name: str, *, split: str | None, revision: str | None, columns: tuple[str, ...], where: str) -> Pin:
        return Pin(name=name, revision="sha256:0000000000000000", num_rows=ROWS.get(name, 1_000))


def paper_plan(name: str) -> Plan:
    return unroll(load_recipe(RECIPES / "papers" / name), PaperResolver())


def gpu_hours(plan: Plan) -> float:
    """6 FLOP a parameter and token in training (8 where activations are computed twice), 2 in a bank."""
    total = 0.0
    for stage in plan.stages:
        if isinstance(stage, Train | Bank):
            encoder = stage.encoder if isinstance(stage, Train) else stage.encoder.encoder
            millions = next(size for name, size in MILLIONS.items() if name in encoder.checkpoint)
            rows, columns = plan.rows[stage.corpus.key], stage.corpus.num_columns
            once = 8 if plan.recipe.runtime.micro_batch else 6
            work = once * stage.training.epochs if isinstance(stage, Train) else 2
            share = 0.1 if isinstance(stage, Train) and stage.stopping is not None else 1.0  # stops within the first tenths of an epoch
            total += work * share * millions * 1e6 * rows * columns * TOKENS
    return total / FLOPS / 3600


def takes(plan: Plan) -> str:
    """As a header says it."""
    trainings = sum(isinstance(stage, Train) for stage in plan.stages)
    return f"{trainings} trainings, about {gpu_hours(plan):.1f} GPU hours (H100; 6 FLOP a parameter and token at 120 TFLOP/s)"
