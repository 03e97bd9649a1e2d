"""Where a recipe is carried out: in this process, or on the cluster that this process has joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sentdist.plan.suggestions import PlannedSearch
from sentdist.plan.unroll import Plan
from sentdist.print_line import PrintLine
from sentdist.stages.context import Context
from sentdist.store.searches import SearchRecord

if TYPE_CHECKING:
    from sentdist.execution.progress import Show
    from sentdist.execution.searching.conductor import Watch
    from sentdist.execution.sweep_end import SweepSummary
    from sentdist.tracking.tracker import Tracker


class Workplace(Protocol):
    """Carries out searches and builds plans. What that needs is imported when it is asked for: torch, Ray and Tune take seconds."""

    def search(
        self,
        planned: PlannedSearch,
        context: Context,
        *,
        print_line: PrintLine,
        watch: Watch | None = None,
        tracker: Tracker | None = None,
        until: float | None = None,
    ) -> SearchRecord:
        """Carry out a search until its end; see `search_in_process`."""
        ...

    def build(self, plan: Plan, context: Context, *, print_line: PrintLine, show: Show | None = None) -> SweepSummary:
        """Build all trials of a plan; see `build_locally`."""
        ...

    def end(self, sweep: str, because: BaseException) -> None:
        """Called by `show`: raise the error out of `build`, or have that stop the sweep and return."""
        ...


class ThisProcess(Workplace):
    """One stage after another, without Ray."""

    def search(
        self,
        planned: PlannedSearch,
        context: Context,
        *,
        print_line: PrintLine,
        watch: Watch | None = None,
        tracker: Tracker | None = None,
        until: float | None = None,
    ) -> SearchRecord:
        from sentdist.execution.searching.in_process import search_in_process

        return search_in_process(planned, context, print_line=print_line, watch=watch, tracker=tracker, until=until)

    def build(self, plan: Plan, context: Context, *, print_line: PrintLine, show: Show | None = None) -> SweepSummary:
        from sentdist.execution.local_sweep import build_locally

        return build_locally(plan, context, print_line=print_line, show=show)

    def end(self, sweep: str, because: BaseException) -> None:
        raise because


@dataclass(frozen=True)
class Cluster(Workplace):
    """The cluster that RAY_ADDRESS names. tracking: address of an MLflow server that takes what is built; None: nothing does."""

    tracking: str | None

    def search(
        self,
        planned: PlannedSearch,
        context: Context,
        *,
        print_line: PrintLine,
        watch: Watch | None = None,
        tracker: Tracker | None = None,
        until: float | None = None,
    ) -> SearchRecord:
        from sentdist.execution.searching.on_cluster import search_on_cluster

        return search_on_cluster(planned, context, print_line=print_line, watch=watch, tracker=tracker, until=until)

    def build(self, plan: Plan, context: Context, *, print_line: PrintLine, show: Show | None = None) -> SweepSummary:
        from sentdist.execution.run import run_on_cluster

        return run_on_cluster(plan, context, tracking=self.tracking, print_line=print_line, show=show)

    def end(self, sweep: str, because: BaseException) -> None:
        from sentdist.execution.stop_sweeps import stop_sweeps

        stop_sweeps(sweep)
