"""What this machine is doing, under the names that MLflow's page of system metrics knows."""

from __future__ import annotations

import contextlib


class SystemSampler:
    """Processor, memory, disk, network and, where nvidia-ml-py is installed, GPUs, by MLflow's own monitors.

    Its `SystemMetricsMonitor` is not used: it asks the server for the run before every sample and ends for good when one request fails.
    """

    def __init__(self) -> None:
        from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
        from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
        from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
        from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

        self.count = 0
        self._monitors = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
        with contextlib.suppress(ImportError, RuntimeError):  # no GPU, or no library to ask it: the page shows what there is
            self._monitors.append(GPUMonitor())
        self._monitors[0].collect_metrics()  # the processor's load is that since the last question
        self._monitors[0].clear_metrics()

    def sample(self) -> dict[str, float]:
        """Metrics by name, `system/…`."""
        found: dict[str, float] = {}
        for monitor in self._monitors:
            monitor.collect_metrics()
            found |= {f"system/{name}": float(value) for name, value in monitor.aggregate_metrics().items()}
            monitor.clear_metrics()
        self.count += 1
        return found
