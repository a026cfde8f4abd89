"""NVML without a GPU: what is used of the module `pynvml`, over GPUs that a test changes."""

# ruff: noqa: N802, N815
from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

GIB = 1 << 30


def install(folder: Path, count: int) -> None:
    """Write the module `pynvml` for other processes that have this folder and the root on PYTHONPATH."""
    code = f"FakeNvml([FakeGpu(uuid=f'GPU-{{one}}', minor=one) for one in range({count})])"
    head = "import sys\nfrom tests.deploy.fake_nvml import FakeGpu, FakeNvml\n"
    (folder / "pynvml.py").write_text(f"{head}sys.modules[__name__] = {code}\n")


class NVMLError(Exception):
    """As of the library: one for each code."""


class NoPermissionError(NVMLError):
    """The device file cannot be opened."""


class NotSupportedError(NVMLError):
    """This GPU does not tell."""


@dataclass
class FakeGpu:
    """One; `fault` is raised when it is asked for."""

    name: str = "Tesla T4"
    memory_gib: float = 15.0
    uuid: str = "GPU-0"
    minor: int = 0
    fault: NVMLError | None = None
    busy: NVMLError | None = None


@dataclass
class FakeNvml:
    """In the place of the module; `missing`: there is no driver."""

    gpus: list[FakeGpu] = field(default_factory=lambda: [FakeGpu()])
    missing: bool = False
    loaded: int = 0

    NVMLError = NVMLError
    NVMLError_NoPermission = NoPermissionError
    NVMLError_NotSupported = NotSupportedError
    nvmlDeviceGetUUID = staticmethod(attrgetter("uuid"))
    nvmlDeviceGetName = staticmethod(attrgetter("name"))
    nvmlDeviceGetMinorNumber = staticmethod(attrgetter("minor"))

    def nvmlInit(self) -> None:
        self._require()
        self.loaded += 1

    def nvmlShutdown(self) -> None:
        self.loaded -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        self._require()
        return "570.86"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        gpu = self.gpus[index]
        if gpu.fault is not None:
            raise gpu.fault
        return gpu

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(total=int(gpu.memory_gib * GIB), used=GIB)

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:
        if gpu.busy is not None:
            raise gpu.busy
        return SimpleNamespace(gpu=25)

    def _require(self) -> None:
        if self.missing:
            raise NVMLError("NVML Shared Library Not Found")
