"""A dummy client: a small CNN that really trains on handwritten digits, timed round by round.

A round is what it is to Multi-FedLS's dummy client (Brum 2023, section 6.1): read the data, train on them,
test. The first round of a process also sets up the device and compiles kernels, so it is kept apart, and
every repetition is a process of its own. Slowdowns are of the later rounds (section 7.3).
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import signal
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from spotweave.envs.traces.images import load_digits
from spotweave.training.federated.measuring.link import MeasureError

SIDE = 28
CLASSES = 10


@dataclass(frozen=True)
class Workload:
    """What the dummy client does. Seconds of two workloads cannot be compared."""

    samples: int = 1024  # images to train on; a quarter as many more are tested on
    batch_size: int = 64  # images per step
    width: int = 32  # channels of the first convolution; the time grows about with its square
    seed: int = 0  # of data and weights

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("samples", self.samples, 40, 10_000_000),
            ("batch-size", self.batch_size, 1, 65_536),
            ("width", self.width, 1, 1024),
            ("seed", self.seed, 0, 2**32 - 1),
        ):
            if not low <= value <= high:
                raise MeasureError(f"--{name} is {value}, expected {low} to {high}")

    @property
    def text(self) -> str:
        """Says what was run; equal texts are equal workloads."""
        return (
            f"digits-cnn-2, {self.samples} samples, batch size {self.batch_size}, width {self.width}, "
            f"seed {self.seed}"
        )


@dataclass(frozen=True)
class Round:
    """Seconds of one round, and what it learned."""

    read_s: float
    train_s: float
    test_s: float
    loss: float
    accuracy: float

    @property
    def round_s(self) -> float:
        """Seconds of the whole round."""
        return self.read_s + self.train_s + self.test_s


def digits(count: int, rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """[count, 28, 28] of the package's handwritten digits, drawn at random; [count] labels."""
    images, labels = load_digits()
    rows = rng.integers(len(labels), size=count)
    return (255 * images[rows]).astype(np.uint8), labels[rows]


def network(width: int) -> nn.Module:
    """Two convolutions and two dense layers, the CNN that FEMNIST is usually trained with."""
    return nn.Sequential(
        nn.Conv2d(1, width, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * (SIDE // 4) ** 2, 8 * width),
        nn.ReLU(),
        nn.Linear(8 * width, CLASSES),
    )


def device_named(name: str) -> str:
    """`cpu` or `cuda`; `auto` takes the GPU where there is one. Raises MeasureError."""
    if name not in ("auto", "cpu", "cuda"):
        raise MeasureError(f"there is no device {name!r}: use auto, cpu or cuda")
    found = torch.cuda.is_available()
    if name == "cuda" and not found:
        raise MeasureError("--device cuda: this machine has no GPU that torch can use; use --device cpu")
    return "cuda" if found and name != "cpu" else "cpu"


def machine(device: str) -> dict[str, str | int]:
    """Description of the measured machine."""
    document: dict[str, str | int] = {
        "processor": processor(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "device": device,
        "torch": torch.__version__,
    }
    if device == "cuda":
        document["gpu"] = torch.cuda.get_device_name(0)
    return document


def processor() -> str:
    """The processor's name, as people know it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def run_rounds(workload: Workload, rounds: int, device: str, data: Path) -> list[Round]:
    """Train `rounds` rounds in this process; the data are read from `data` in each of them."""
    torch.manual_seed(workload.seed)
    order = torch.Generator().manual_seed(workload.seed)
    model: nn.Module | None = None
    done = []
    for _ in range(rounds):
        _forget_pages(data)
        began = time.perf_counter()
        with np.load(data) as stored:
            images = torch.from_numpy(stored["images"])
            labels = torch.from_numpy(stored["labels"]).long()
        read = time.perf_counter()
        if model is None:
            # Inside the clock: setting up the device is what makes a first round slow.
            model = network(workload.width).to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        losses = []
        for rows in _batches(torch.randperm(workload.samples, generator=order), workload):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(_batch(images, rows, device)), labels[rows].to(device))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.detach())
        mean_loss = float(torch.stack(losses).mean())  # waits for the GPU
        trained = time.perf_counter()
        right = torch.zeros((), dtype=torch.long, device=device)
        with torch.no_grad():
            for rows in _batches(torch.arange(workload.samples, len(labels)), workload):
                right += (model(_batch(images, rows, device)).argmax(1) == labels[rows].to(device)).sum()
        accuracy = int(right) / (len(labels) - workload.samples)
        tested = time.perf_counter()
        done.append(Round(read - began, trained - read, tested - trained, mean_loss, accuracy))
    return done


def _batches(rows: torch.Tensor, workload: Workload) -> list[torch.Tensor]:
    size = workload.batch_size
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _batch(images: torch.Tensor, rows: torch.Tensor, device: str) -> torch.Tensor:
    return images[rows].to(device).unsqueeze(1).float().div_(255)


def _forget_pages(path: Path) -> None:
    """Let the next reading be from the disk or the mounted bucket, not from memory."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure_rounds(
    workload: Workload, rounds: int, repetitions: int, device: str, data_directory: Path | None = None
) -> list[list[Round]]:
    """[repetition][round], each repetition in a fresh process; the first round is not like the others.

    Data are put into and read from `data_directory`, e.g. a mounted bucket; else a temporary one.

    Raises:
        MeasureError: for a directory that cannot be written, and a process that died.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="spotweave-", dir=data_directory) as directory:
            data = Path(directory) / "digits.npz"
            images, labels = digits(
                workload.samples + workload.samples // 4, np.random.default_rng(workload.seed)
            )
            np.savez(data, images=images, labels=labels)
            with data.open("rb") as file:
                os.fsync(file.fileno())
            context = multiprocessing.get_context("spawn")
            measured = []
            for _ in range(repetitions):
                with ProcessPoolExecutor(1, context, signal.signal, (signal.SIGINT, signal.SIG_DFL)) as pool:
                    measured.append(pool.submit(run_rounds, workload, rounds, device, data).result())
            return measured
    except OSError as error:
        where = data_directory or tempfile.gettempdir()
        raise MeasureError(f"cannot keep the dummy's data in {where}: {error.strerror or error}") from error
    except BrokenProcessPool as error:
        raise MeasureError(
            "the dummy application was killed: where memory is short, take a smaller --batch-size or --width"
        ) from error
    except torch.OutOfMemoryError as error:
        raise MeasureError("the GPU's memory is too small: take a smaller --batch-size or --width") from error
