"""One sweep that is being disturbed: its store, its drivers, and what they say."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.faults.artifacts import record_marks
from tests.faults.environment import Environment
from tests.faults.events import Observed, observed
from tests.faults.moments import MOMENTS, Sight
from tests.faults.processes import Process

LOOK_EVERY_S = 0.03


@dataclass(kw_only=True)
class Driver:
    """A `sentdist sweep --no-grid` of the sweep. generation: 0, and one more each resubmission. was_ended: by a fault."""

    process: subprocess.Popen[str]
    generation: int
    listener: threading.Thread
    was_ended: bool = False

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None


class Target:
    """What a fault can do something to."""

    def __init__(self, environment: Environment, *, name: str, variant: str, logs: Path) -> None:
        self.environment = environment
        self.name = name
        self.variant = variant
        self.store = environment.disk.folder / name
        self.recipe = environment.recipe(name, variant)
        self.events: list[Observed] = []
        self.drivers: list[Driver] = []
        self.halted: list[Process] = []  # by SIGSTOP
        self.damaged: set[str] = set()  # places of the artifacts that a fault damaged
        self.logs = logs
        self._checkpoints: dict[str, frozenset[str]] = defaultdict(frozenset)
        logs.mkdir(parents=True, exist_ok=True)

    def submit(self, *, at_once: bool = False) -> Driver:
        """Start a driver: once more because the last one ended, or `at_once`, beside it."""
        last = self.drivers[-1].generation if self.drivers else -1
        number = len(self.drivers)
        arguments = ["sweep", str(self.recipe), "--no-grid", "--store", str(self.store), "--data", str(self.environment.data)]
        process = self.environment.sentdist(*arguments, log=self.logs / f"driver-{number}.err")
        generation = last if at_once else last + 1
        listener = threading.Thread(target=self._listen, args=(process, number, generation), daemon=True)
        driver = Driver(process=process, generation=generation, listener=listener)
        self.drivers.append(driver)
        listener.start()
        return driver

    @property
    def running(self) -> list[Driver]:
        return [driver for driver in self.drivers if driver.is_running]

    def end_driver(self, *signals: signal.Signals, pause_s: float = 3.0) -> None:
        """Send the signals to the last driver, with pauses in which it may end by itself."""
        driver = self.drivers[-1]
        driver.was_ended = True
        for number in signals:
            driver.process.send_signal(number)
            deadline = time.monotonic() + pause_s
            while driver.is_running and time.monotonic() < deadline:
                time.sleep(LOOK_EVERY_S)

    def wait_for(self, moment: str, *, until: float) -> bool:
        """Wait for a moment (see moments.py); whether it came before the deadline and before the sweep was over."""
        while not MOMENTS[moment](self.sight()):
            if time.monotonic() > until or not self.running:
                return False
            time.sleep(LOOK_EVERY_S)
        return True

    def sight(self) -> Sight:
        for folder in (self.store / "running").glob("*/*"):
            self._checkpoints[folder.parent.name] |= {folder.name}
        living = {path.name for path in (self.store / "running").glob("*")}
        return Sight(events=tuple(self.events), checkpoints={key: names for key, names in self._checkpoints.items() if key in living})

    def find(self, what: str, *, host: int | None = None) -> Process | None:
        """A process of the sweep's cluster that does this, the newest one; None if there is none."""
        found = [process for process in self.environment.processes(what) if host in (None, process.host)]
        return max(found, key=lambda process: process.pid, default=None)

    def command(self, *arguments: str, tracking: bool = False) -> tuple[int, str]:
        """A command of `sentdist` to its end: exit code and output."""
        done = self.environment.sentdist(*arguments, log=self.logs / "commands.err", tracking=tracking)
        reported, _ = done.communicate()
        self.tell(f"sentdist {' '.join(arguments)}: {done.returncode}\n{reported}")
        return done.returncode, reported

    def reported(self, words: str) -> bool:
        """Whether a driver has said this to its user."""
        return any(words in (self.logs / f"driver-{number}.out").read_text() for number in range(len(self.drivers)))

    def driver_process(self) -> Process:
        """The process of the last driver."""
        return Process(pid=self.drivers[-1].process.pid, host=0, title="driver")

    def records(self) -> dict[str, tuple[int, int]]:
        """See `record_marks`."""
        return record_marks(self.store)

    def tell(self, line: str) -> None:
        """A line into the round's own log."""
        with (self.logs / "round.log").open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')}  {line}\n")

    def _listen(self, process: subprocess.Popen[str], number: int, generation: int) -> None:
        assert process.stdout is not None
        with process.stdout, (self.logs / f"driver-{number}.out").open("w") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                event = observed(line.rstrip(), at=time.monotonic(), driver=number)
                if event is not None:
                    self.events.append(event)
