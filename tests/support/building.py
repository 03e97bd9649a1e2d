"""A whole plan built in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sentdist.recipe.unroll import Plan
from sentdist.stages.context import Context
from sentdist.stages.local import build_all
from sentdist.store.store import Artifact

if TYPE_CHECKING:  # torch takes seconds
    from sentdist.stages.rungs import Listener


def run_local(plan: Plan, context: Context, *, listen: Listener | None = None) -> list[Artifact]:
    """Build every missing stage of a plan, inputs first; returns the artifacts of all stages in that order."""
    return build_all(plan.stages, context, listen=listen)
