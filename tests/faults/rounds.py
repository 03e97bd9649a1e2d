"""A round: one sweep, its faults, its end, and what is wrong afterwards."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from signal import SIGKILL

from sentdist.run.bank_owner import PREFIX
from sentdist.run.client import BOARDS
from tests.faults.artifacts import differences, digests, num_bytes
from tests.faults.environment import NUM_HOSTS, Environment, LookedAtLater
from tests.faults.events import built_twice, recovery_s
from tests.faults.kinds import Fault, fault_named
from tests.faults.processes import WORKING
from tests.faults.selection import Injection, RoundPlan
from tests.faults.target import LOOK_EVERY_S, Target
from tests.faults.tracked import tracking_faults
from tests.support.waiting import wait_for

ROUND_S = 420.0  # many times what a round takes on an idle machine; then it counts as standing still
SETTLES_WITHIN_S = 40.0  # many times what it takes on an idle machine
GIVEN_UP_S = 80.0  # the board gives a driver that was killed a minute to come back; then it clears up
SUBMITTED_AGAIN_AT_MOST = 4
REBUILD = "sentdist report --rebuild-mlflow"
RAYS_OWN = ("AutoscalingCoordinator",)  # actors of which Ray has one a cluster, once it was needed
NUM_RUNS = 4  # of the recipe on MLflow: the sweep and 3 trials


@dataclass(frozen=True, kw_only=True)
class Injected:
    """A fault as it went. at_s: seconds after the start of the round; recovery_s: see `recovery_s`; num_finished: artifacts there were."""

    fault: str
    moment: str
    lasts_s: float
    at_s: float | None  # None: the moment never came, or there was nothing to do it to
    num_finished: int = 0
    recovery_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a round came to; it is as it should be if nothing is wrong.

    submissions: how often the sweep was submitted. bytes_left: in `.staging` and `running` of the store and in the temp folders.
    """

    seed: int
    number: int
    variant: str
    injected: tuple[Injected, ...]
    submissions: int
    seconds: float
    bytes_left: dict[str, int]
    wrong: tuple[str, ...]

    @property
    def line(self) -> str:
        """For people."""
        faults = "; ".join(
            f"{one.fault} ({one.moment})" + ("" if one.at_s is None else f" at {one.at_s:.0f} s, recovered in {_seconds(one.recovery_s)}")
            for one in self.injected
        )
        verdict = "ok" if not self.wrong else f"WRONG: {'; '.join(self.wrong)}"
        return f"round {self.number} ({self.variant}, {self.seconds:.0f} s, submitted {self.submissions} x): {faults}: {verdict}"

    @property
    def command(self) -> str:
        """What repeats this round alone."""
        return f"python -m tests.faults --seed {self.seed} --only {self.number}"

    @property
    def json(self) -> str:
        return json.dumps(asdict(self))


def outcome_of(line: str) -> Outcome:
    """The outcome that `Outcome.json` wrote."""
    values = json.loads(line)
    return Outcome(**values | {"injected": tuple(Injected(**one) for one in values["injected"]), "wrong": tuple(values["wrong"])})


def undisturbed(environment: Environment, variant: str, logs: Path) -> dict[str, str]:
    """The digests of a sweep that nothing happens to; of one worker with torch without Ray at all, in one process."""
    target = Target(environment, name=f"undisturbed-{variant}", variant=variant, logs=logs)
    local = ["--local"] if variant == "torch-1" else []
    arguments = ["sweep", str(target.recipe), "--no-grid", *local, "--store", str(target.store), "--data", str(environment.data)]
    done = environment.sentdist(*arguments, log=logs / "undisturbed.err", tracking=False)
    output, _ = done.communicate(timeout=ROUND_S)
    if done.returncode:
        raise RuntimeError(f"the undisturbed sweep failed: {output[-2000:]}")
    found = digests(target.store)
    environment.ask("end_owner", str(target.store))
    shutil.rmtree(target.store)
    return found


def play(environment: Environment, plan: RoundPlan, expected: Mapping[str, str], logs: Path) -> Outcome:
    """Carry a round out and judge it. What a fault took is given back, so that the environment is whole for the next one."""
    target = Target(environment, name=f"soak-{plan.seed}-{plan.number}", variant=plan.variant, logs=logs)
    before = num_bytes(environment.scratch)
    started = time.monotonic()
    target.submit()
    marks: dict[str, tuple[int, int]] = {}
    injected: list[Injected] = []
    wrong: list[str] = []
    for injection in plan.injections:
        one = _inject(target, injection, started, marks)
        injected.append(one)
        target.tell(str(one))
    may_submit = any(fault_named(one.fault).then == "submit again" for one in injected if one.at_s is not None)
    wrong += _bring_to_its_end(target, started, may_submit=may_submit)
    seconds = time.monotonic() - started
    environment.make_whole()
    wrong += _replace_damaged(target) if target.damaged else []
    wrong += _rebuild_tracking(target)
    gone = tuple(f"{place}/" for place in target.damaged if not (target.store / place).exists())
    wrong += differences(digests(target.store), {file: digest for file, digest in expected.items() if not file.startswith(gone)})
    replaced = {place for place, mark in marks.items() if target.records().get(place) != mark} - target.damaged
    wrong += [f"the record of {place} was replaced" for place in sorted(replaced)]
    wrong += [f"{kind} {label} was built twice" for kind, label in built_twice(target.events) if not target.damaged]
    is_given_up_later = any(driver.process.returncode == -SIGKILL for driver in target.drivers)
    wrong += _left(environment, with_boards=not is_given_up_later)
    wrong += tracking_faults(environment.mlflow_db, target.name, num_runs=NUM_RUNS, was_rebuilt=bool(target.damaged))
    wrong += look_later(environment)
    if is_given_up_later:
        due = time.monotonic() + GIVEN_UP_S
        environment.later.append(LookedAtLater(due=due, name=target.name, store=target.store, was_rebuilt=bool(target.damaged)))
    left = {place: num_bytes(target.store / place) for place in (".staging", "running")} | {"temp": num_bytes(environment.scratch) - before}
    wrong += [f"{left[place]} bytes are left in {place}" for place in ("running",) if left[place]]
    environment.ask("end_owner", str(target.store))
    if wrong:
        environment.keep_logs(logs / "cluster")
        shutil.copytree(target.store, logs / "store", dirs_exist_ok=True)
    if not is_given_up_later:
        shutil.rmtree(target.store, ignore_errors=True)
    recovered = tuple(
        one if one.at_s is None else replace(one, recovery_s=recovery_s(target.events, started + one.at_s)) for one in injected
    )
    return Outcome(
        seed=plan.seed, number=plan.number, variant=plan.variant, injected=recovered, seconds=round(seconds, 1), bytes_left=left,
        submissions=len(target.drivers), wrong=tuple(wrong),
    )  # fmt: skip


def _inject(target: Target, injection: Injection, started: float, marks: dict[str, tuple[int, int]]) -> Injected:
    """Wait for the moment, inject, let it pass, and submit again where that is the user's part."""
    fault = fault_named(injection.fault)
    one = Injected(fault=fault.name, moment=injection.moment, lasts_s=injection.lasts_s, at_s=None)
    until = started + ROUND_S
    if not _revive(target) or not target.wait_for(injection.moment, until=until):
        return one
    there = target.records()
    at = time.monotonic()
    if not _begin(target, fault, until=until):
        return one
    for place, mark in there.items():
        marks.setdefault(place, mark)
    try:
        time.sleep(injection.lasts_s)
    finally:
        fault.end(target)
    if fault.then == "submit again" and not target.running:
        target.submit()
    return replace(one, at_s=round(at - started, 2), num_finished=len(there))


def _begin(target: Target, fault: Fault, *, until: float) -> bool:
    """Begin a fault as soon as there is something to do it to; False if there was nothing until the sweep's end."""
    while target.running and time.monotonic() < until:
        if fault.begin(target):
            return True
        time.sleep(LOOK_EVERY_S)
    return False


def _revive(target: Target) -> bool:
    """Submit again if the last fault ended the sweep before its end; False if it is over."""
    if not target.running and target.drivers[-1].process.returncode and len(target.drivers) <= SUBMITTED_AGAIN_AT_MOST:
        target.submit()
    return bool(target.running)


def _bring_to_its_end(target: Target, started: float, *, may_submit: bool) -> list[str]:
    """Wait for the drivers, and submit again as long as the last one fails; what is wrong with that."""
    while True:
        while target.running and time.monotonic() < started + ROUND_S:
            time.sleep(LOOK_EVERY_S)
        if target.running:
            target.tell(f"stands still: {[process.title[:80] for process in target.environment.processes() if process.what]}")
            for driver in target.running:
                driver.process.kill()
            return [f"the sweep was not over after {ROUND_S:.0f} s"]
        if target.drivers[-1].process.returncode == 0 or len(target.drivers) > SUBMITTED_AGAIN_AT_MOST:
            break
        target.submit()
    for driver in target.drivers:
        driver.listener.join()
    failed = [driver for driver in target.drivers if driver.process.returncode and not driver.was_ended]
    if target.drivers[-1].process.returncode:
        return [f"it failed {len(failed)} times, at last with exit code {target.drivers[-1].process.returncode}"]
    return [] if may_submit or not failed else [f"it had to be submitted again after exit code {failed[0].process.returncode}"]


def _replace_damaged(target: Target) -> list[str]:
    """What was damaged after its last use nobody has noticed: the user lets the store check itself,
    drops what it names and submits again. A record that the sweep's end found damaged has been reported and moved aside: what nothing
    needs any more is not built again."""
    _, reported = target.command("store", "check", "--store", str(target.store))
    named = [line.partition(":")[0] for line in reported.splitlines() if line.count("/") and ":" in line]
    wrong = [f"`store check` names {place}, which no fault damaged" for place in named if place not in target.damaged]
    for place in named:
        _, reported = target.command("store", "drop", place, "--yes", "--store", str(target.store))
        target.damaged |= {line for line in reported.splitlines() if "/" in line}  # with what was made from it
    if not named:
        return wrong
    target.submit()
    return wrong + _bring_to_its_end(target, time.monotonic(), may_submit=False)


def _rebuild_tracking(target: Target) -> list[str]:
    """Where MLflow was away at the sweep's end, the user does what the sweep's last line asks for."""
    if not target.reported(f"`{REBUILD}` brings it in"):
        return []
    code, _ = target.command(*REBUILD.split()[1:], target.name, "--store", str(target.store), tracking=True)
    return [f"`{REBUILD}` ended with exit code {code}"] if code else []


def look_later(environment: Environment, *, wait: bool = False) -> list[str]:
    """What is wrong with earlier rounds now that the boards have given up the drivers that were killed in them;
    `wait` until they all have."""
    wrong: list[str] = []
    while environment.later and (wait or environment.later[0].due <= time.monotonic()):
        it = environment.later.pop(0)
        time.sleep(max(0.0, it.due - time.monotonic()))
        if not environment.later:
            wrong += [f"after {it.name}: {line}" for line in (_left(environment) if wait else ())]
        found = tracking_faults(environment.mlflow_db, it.name, num_runs=NUM_RUNS, was_rebuilt=it.was_rebuilt)
        wrong += [f"later, {it.name}: {line}" for line in found]
        shutil.rmtree(it.store, ignore_errors=True)
    return wrong


def _left(environment: Environment, *, with_boards: bool = True) -> list[str]:
    """What a sweep that is over has left behind on the cluster, after some time to clear up."""
    found: list[str] = []

    def is_quiet() -> bool:
        found[:] = _left_now(environment, with_boards=with_boards and not environment.later)
        return not found

    with suppress(TimeoutError):
        wait_for(is_quiet, what="a quiet cluster", seconds=SETTLES_WITHIN_S)
    return found


def _left_now(environment: Environment, *, with_boards: bool) -> list[str]:
    seen = environment.ask("census")
    processes = [process for process in environment.processes(*WORKING) if with_boards or process.what != "BoardActor"]
    found = [f"the process {process.title[:60].strip()} is left on host {process.host}" for process in processes]
    allowed = (PREFIX, *RAYS_OWN) if with_boards else (PREFIX, *RAYS_OWN, BOARDS)
    found += [f"the actor {name} is left" for name in seen["actors"] if not name.startswith(allowed)]
    found += [f"the placement group {name} is left" for name in seen["groups"]]
    if seen["num_nodes"] != NUM_HOSTS or seen["free_cpus"] != seen["num_cpus"]:
        found.append(f"{seen['free_cpus']:g} of {seen['num_cpus']:g} CPUs on {seen['num_nodes']} hosts are free")
    owners = [name for name in seen["actors"] if name.startswith(PREFIX)]
    return found + ([f"{len(owners)} bank owners are left of one store"] if len(owners) > 1 else [])


def _seconds(value: float | None) -> str:
    return "no time (nothing was left to do)" if value is None else f"{value:.1f} s"
