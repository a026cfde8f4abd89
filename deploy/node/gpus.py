"""The GPUs of this machine, as NVIDIA's driver shows them through NVML (the extra `gpu`)."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotweave.deploy.model.gpus import told
from spotweave.deploy.node.api import GpuStatus

VISIBLE = "CUDA_VISIBLE_DEVICES"
_DEV = Path("/dev")
_CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")  # without these, CUDA finds no GPU
_GIB = 1 << 30
_EVERY_S = 5.0
_STALE_S = 60.0


@dataclass(frozen=True)
class Seen:
    """GPUs that work, and why there are no others."""

    gpus: tuple[GpuStatus, ...] = ()
    problem: str = ""

    def only(self, uuids: Collection[str]) -> Seen:
        """Those of these UUIDs."""
        return Seen(tuple(one for one in self.gpus if one.uuid in uuids), self.problem)

    def __str__(self) -> str:
        """In one line: "1 NVIDIA L4", "no GPU (no working NVIDIA driver: ...)"."""
        found = told([one.name for one in self.gpus])
        return f"{found} ({self.problem})" if self.problem else found


class Nvml:
    """NVIDIA's management library. It stays loaded: loading wakes sleeping GPUs, which takes a second.

    `load` gives the module `pynvml` when it is first needed. Raises ImportError.
    """

    def __init__(self, load: Callable[[], Any] = lambda: importlib.import_module("pynvml")) -> None:
        self._load = load
        self._open = False

    def look(self) -> Seen:
        """What there is now. A GPU that the driver has lost is none."""
        try:
            nvml = self._load()
        except ImportError:
            return Seen(problem="nvidia-ml-py is not installed: pip install 'spotweave[gpu]'")
        try:
            if not self._open:
                nvml.nvmlInit()
                self._open = True
            return _look(nvml)
        except nvml.NVMLError as error:
            if self._open:
                self._open = False
                with suppress(nvml.NVMLError):
                    nvml.nvmlShutdown()
            return Seen(problem=f"no working NVIDIA driver: {error}")


def _look(nvml: Any) -> Seen:
    driver, found, problems = str(nvml.nvmlSystemGetDriverVersion()), [], []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            found.append(_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index), driver))
        except nvml.NVMLError_NoPermission:
            # Somebody else's: its device file is not in this sandbox.
            continue
        except nvml.NVMLError as error:
            problems.append(f"GPU {index}: {error}")
    return Seen(tuple(found), "; ".join(problems))


def _gpu(nvml: Any, handle: Any, driver: str) -> GpuStatus:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    except nvml.NVMLError_NotSupported:
        # Of a partitioned GPU (MIG) it is not known.
        busy = 0.0
    return GpuStatus(
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        name=str(nvml.nvmlDeviceGetName(handle)),
        minor=nvml.nvmlDeviceGetMinorNumber(handle),
        driver=driver,
        memory_gib=memory.total / _GIB,
        used_gib=memory.used / _GIB,
        busy=busy,
    )


class GpuWatch:
    """Polls the GPUs in its own thread, so that a hung driver blocks nothing else."""

    def __init__(self, nvml: Nvml | None = None) -> None:
        self._nvml = Nvml() if nvml is None else nvml
        self._seen: tuple[float, Seen] | None = None
        self._first = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="gpus", daemon=True).start()

    def seen(self, within_s: float = 0.0) -> Seen | None:
        """The latest look; None before the end of the first, for which it waits so long."""
        self._first.wait(within_s)
        if self._seen is None:
            return None
        at_s, seen = self._seen
        age_s = time.monotonic() - at_s
        if age_s > _STALE_S:
            return Seen(problem=f"the NVIDIA driver has not answered for {age_s:.0f} s")
        return seen

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            seen = self._nvml.look()
            self._seen = (time.monotonic(), seen)
            self._first.set()
            self._closed.wait(_EVERY_S)


def uvm_is_loaded() -> bool:
    """Whether the file is there that CUDA makes where it may, and in a sandbox may not."""
    return (_DEV / "nvidia-uvm").exists()


def device_files(minors: Iterable[int]) -> tuple[Path, ...]:
    """What a process must open to use these GPUs."""
    names = [f"nvidia{minor}" for minor in minors]
    return tuple(path for name in (*names, *_CONTROL) if names and (path := _DEV / name).exists())
