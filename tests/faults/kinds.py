"""The kinds of fault: what each is called, where it can be injected, how it begins and ends, and what the user does afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Literal

from tests.faults.disk import damage
from tests.faults.processes import send
from tests.faults.selection import VARIANT_WEIGHTS
from tests.faults.target import Target

ALL = tuple(VARIANT_WEIGHTS)
GROUPS = ("deepspeed-1", "torch-2", "deepspeed-2")  # the variants whose trainings are Ray Train runs
IN_TRAINING = ("a training is at a tenth", "a training is at two thirds", "a training has its second checkpoint", "RCL trains on its banks")
BUSY = (*IN_TRAINING, "a bank is made", "scores are made")
ANY_TIME = ("the sweep has begun", *BUSY, "a bank is done")
SECONDS = (2.0, 6.0)
POOLS = ("torch-2", "deepspeed-2")  # those that make banks over several workers, in parts
REBOOTED_S = 1_000_000
DAMAGES = (
    ("weights", "train/*/model.safetensors", ("a bank is made", "a bank is done", "RCL trains on its banks"), None),
    ("bank", "bank/*/shards/*.npy", ("a bank is done", "RCL trains on its banks"), None),
    ("corpus", "corpus/*/*.arrow", ("a training is at a tenth", "a bank is made"), None),
    ("record", "*/*/record.json", ("a training is at a tenth", "a bank is done", "RCL trains on its banks"), None),
    ("checkpoint", "running/*/*/*.pt", ("a training has its second checkpoint",), None),
)
UNNOTICED_S, NOTICED_S = (1.0, 4.0), (18.0, 22.0)  # of a silent host: the head gives it up after about 14 s, see hosts.py


def _nothing(target: Target) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A kind of fault.

    begin: injects it; False if there is nothing to do it to just now. end: what makes it pass, `lasts_s` seconds later. then: what the
    user has to do, if anything. with_redis: only in an environment whose head keeps its tables in Redis.
    """

    name: str
    begin: Callable[[Target], bool]
    end: Callable[[Target], None] = _nothing
    moments: tuple[str, ...] = ANY_TIME
    variants: tuple[str, ...] = ALL
    lasts_s: tuple[float, float] = (0.0, 0.0)
    then: Literal["nothing", "submit again"] = "nothing"
    awaits: str | None = None
    with_redis: bool = False


def _kill(target: Target, *, what: str, host: int | None = None) -> bool:
    process = target.find(what, host=host)
    if process is not None:
        target.tell(f"kill -9 {process.pid} on host {process.host}: {process.title[:90]}")
        send(process, SIGKILL)
    return process is not None


def _halt(target: Target, *, what: str, host: int | None = None) -> bool:
    process = target.find(what, host=host)
    if process is not None:
        target.tell(f"SIGSTOP {process.pid} on host {process.host}: {process.title[:90]}")
        target.halted.append(process)
        send(process, SIGSTOP)
    return process is not None


def _go_on(target: Target) -> None:
    while target.halted:
        send(target.halted.pop(), SIGCONT)


def _end_driver(target: Target, *, gently: bool) -> bool:
    target.end_driver(*((SIGTERM, SIGKILL) if gently else (SIGKILL,)))
    return True


def _halt_driver(target: Target) -> bool:
    target.halted.append(target.driver_process())
    send(target.halted[-1], SIGSTOP)
    return True


def _make_whole(target: Target) -> None:
    target.environment.make_whole()


def _lose_host(target: Target) -> bool:
    target.environment.lose_host()
    return True


def _lose_gcs(target: Target) -> bool:
    return target.environment.hosts.kill_gcs()


def _lose_head(target: Target) -> bool:
    """With all that runs there, the driver among it."""
    for driver in target.running:
        driver.was_ended = True
    target.environment.lose_head()
    return True


def _come_back_rebooted(target: Target) -> None:
    """Another monotonic clock, which is what a host has that was started again; the time of day cannot differ between hosts here."""
    target.environment.make_whole(monotonic_s=REBOOTED_S)


def _cut_off(target: Target) -> bool:
    target.environment.hosts.cut(1)
    return True


def _end_mlflow(target: Target) -> bool:
    target.environment.signal_mlflow(SIGKILL)
    return True


def _halt_mlflow(target: Target) -> bool:
    target.environment.signal_mlflow(SIGSTOP)
    return True


def _fill(target: Target) -> bool:
    target.environment.disk.fill()
    return True


def _make_read_only(target: Target) -> bool:
    return target.environment.disk.make_read_only()


def _silence(target: Target) -> bool:
    target.environment.disk.silence()
    return True


def _damage(target: Target, *, files: str) -> bool:
    """A byte of the newest such file; what is in `running` belongs to no artifact."""
    found = sorted(target.store.glob(files), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        return False
    damage(found[-1])
    place = found[-1].relative_to(target.store)
    target.tell(f"damaged {place}")
    target.damaged.add("/".join(place.parts[:2]))
    return True


def _submit_beside(target: Target) -> bool:
    target.submit(at_once=True)
    return True


def _stop_sweep(target: Target) -> bool:
    """`sentdist stop`; False if it came too late, as the sweep was over."""
    code, _ = target.command("stop", target.name)
    if code == 0:
        for driver in target.running:
            driver.was_ended = True
            driver.process.wait()
    return code == 0


def _drop_banks(target: Target) -> bool:
    return bool(target.environment.ask("drop_banks", str(target.store)))


def _of(what: str, *, moments: tuple[str, ...], variants: tuple[str, ...] = ALL, name: str = "") -> tuple[Fault, Fault]:
    """A process that does `what` is killed, or stands still for some seconds. name: in words of what it does at these moments."""
    name = name or what
    return (
        Fault(name=f"kill -9 {name}", begin=partial(_kill, what=what), moments=moments, variants=variants),
        Fault(
            name=f"SIGSTOP {name}", begin=partial(_halt, what=what), end=_go_on, moments=moments, variants=variants, lasts_s=SECONDS
        ),
    )  # fmt: skip


FAULTS: tuple[Fault, ...] = (
    Fault(name="kill -9 driver", begin=partial(_end_driver, gently=False), then="submit again"),
    Fault(name="SIGSTOP driver", begin=_halt_driver, end=_go_on, lasts_s=SECONDS),
    Fault(name="SIGTERM driver", begin=partial(_end_driver, gently=True), then="submit again"),
    Fault(name="sentdist stop", begin=_stop_sweep, then="submit again"),
    Fault(name="two drivers", begin=_submit_beside),
    *_of("BoardActor", moments=ANY_TIME),
    *_of("trial", moments=ANY_TIME),
    *_of("worker", moments=BUSY),
    *_of("train worker", moments=IN_TRAINING, variants=GROUPS),
    *_of("train controller", moments=IN_TRAINING, variants=GROUPS),
    *_of("train worker", name="bank worker", moments=("a bank is made",), variants=POOLS),  # the group that trains makes banks, too
    *_of("bank owner", moments=("RCL trains on its banks", "a bank is made")),
    Fault(name="banks dropped from memory", begin=_drop_banks, moments=("RCL trains on its banks",)),
    Fault(name="kill -9 raylet", begin=partial(_kill, what="raylet", host=1), end=_make_whole, lasts_s=SECONDS),
    Fault(name="SIGSTOP raylet", begin=partial(_halt, what="raylet", host=1), end=_go_on, lasts_s=UNNOTICED_S),
    Fault(name="host gone and back", begin=_lose_host, end=_make_whole, lasts_s=SECONDS),
    Fault(name="host gone with its shards", begin=_lose_host, end=_make_whole, moments=("RCL trains on its banks",), lasts_s=SECONDS),
    Fault(name="host back with another clock", begin=_lose_host, end=_come_back_rebooted, lasts_s=SECONDS),
    Fault(name="host cut off for a moment", begin=_cut_off, end=_make_whole, lasts_s=UNNOTICED_S),
    Fault(name="host cut off and given up", begin=_cut_off, end=_make_whole, lasts_s=NOTICED_S),
    Fault(name="kill -9 GCS", begin=_lose_gcs, end=_make_whole, lasts_s=SECONDS, with_redis=True),
    Fault(name="head gone and back", begin=_lose_head, end=_make_whole, lasts_s=SECONDS, then="submit again", with_redis=True),
    Fault(name="kill -9 MLflow", begin=_end_mlflow, end=_make_whole, lasts_s=SECONDS),
    Fault(name="SIGSTOP MLflow", begin=_halt_mlflow, end=_make_whole, lasts_s=SECONDS),
    Fault(name="store full", begin=_fill, end=_make_whole, lasts_s=SECONDS, then="submit again"),
    Fault(name="store read-only", begin=_make_read_only, end=_make_whole, lasts_s=SECONDS, then="submit again"),
    Fault(name="store does not answer", begin=_silence, end=_make_whole, lasts_s=SECONDS),
    *(
        Fault(name=f"{what} damaged", begin=partial(_damage, files=files), moments=moments, awaits=awaits)
        for what, files, moments, awaits in DAMAGES
    ),
)


def ready(*, with_redis: bool = False) -> list[Fault]:
    """The kinds that can be injected into an environment, with or without a Redis."""
    return [fault for fault in FAULTS if fault.awaits is None and (with_redis or not fault.with_redis)]


def fault_named(name: str) -> Fault:
    """The kind of that name."""
    (found,) = [fault for fault in FAULTS if fault.name == name]
    return found
