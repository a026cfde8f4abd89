"""Labelled images for federated work: those that come with the package, or files of MNIST or CIFAR-10.

`python -m spotweave.envs.traces.images IMAGES.gz LABELS.gz` cuts those of the package out of the test set of
MNIST, t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz of
https://github.com/fgnt/mnist, commit ae608a0.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spotweave.envs.simulation.series import Ints

DIGITS_PATH = Path(__file__).parent / "data" / "digits.npz"
DIGITS = 2000
DIGITS_TRAINING = 1500
"""Number of training images: the first of the package's 2,000 digits; the others are for tests."""

TEST_EVERY = 5
"""Every fifth image is for tests where a folder has only the test set of MNIST."""

_IDX_HEADER = {3: 16, 1: 8}
_CIFAR_ROW = 1 + 3 * 32 * 32


class Images(NamedTuple):
    """Images for training and for tests.

    Attributes:
        training: (n, channels, height, width) float32, 0 to 1.
        training_labels: (n,) int64, 0 to 9.
        test: (m, channels, height, width) float32, 0 to 1.
        test_labels: (m,) int64, 0 to 9.
        what: where they are from, for reports.
    """

    training: NDArray[np.float32]
    training_labels: Ints
    test: NDArray[np.float32]
    test_labels: Ints
    what: str


def load_digits() -> tuple[NDArray[np.float32], Ints]:
    """The 2,000 handwritten digits (MNIST) of the package: images (2000, 28, 28), 0 to 1; labels (2000,)."""
    with np.load(DIGITS_PATH) as stored:
        return (stored["images"] / 255.0).astype(np.float32), stored["labels"].astype(np.int64)


def load_images(folder: Path | None) -> Images:
    """Images of a folder, or those of the package.

    Args:
        folder: with MNIST in IDX files (`t10k-images-idx3-ubyte`, or its .gz, with the labels, and
            `train-...` if they shall be used), or with CIFAR-10 in its binary version (`data_batch_1.bin` to
            `_5`, `test_batch.bin`); None: the digits of the package.

    Raises:
        ValueError: one line, if the folder has neither, or a file is damaged.
    """
    if folder is None:
        images, labels = load_digits()
        at = DIGITS_TRAINING
        return Images(
            images[:at, None], labels[:at], images[at:, None], labels[at:], "2,000 digits of the package"
        )
    if _idx_file(folder, "t10k-images-idx3-ubyte") is not None:
        test, test_labels = _mnist(folder, "t10k")
        if _idx_file(folder, "train-images-idx3-ubyte") is not None:
            return Images(*_mnist(folder, "train"), test, test_labels, f"MNIST of {folder.name}")
        kept = np.arange(len(test)) % TEST_EVERY == TEST_EVERY - 1
        what = (
            f"the test set of MNIST of {folder.name}: {np.sum(~kept)} for training, {np.sum(kept)} for tests"
        )
        return Images(test[~kept], test_labels[~kept], test[kept], test_labels[kept], what)
    if (folder / "test_batch.bin").is_file():
        parts = [_cifar(folder / f"data_batch_{number}.bin") for number in range(1, 6)]
        images, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Images(images, labels, *_cifar(folder / "test_batch.bin"), f"CIFAR-10 of {folder.name}")
    raise ValueError(
        f"{folder} has neither t10k-images-idx3-ubyte(.gz), MNIST, nor test_batch.bin, binary CIFAR-10: "
        f"name the folder with the files"
    )


def _idx_file(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


def _mnist(folder: Path, part: str) -> tuple[NDArray[np.float32], Ints]:
    images, labels = (
        _idx(_idx_file(folder, f"{part}-{name}") or folder / f"{part}-{name}", dimensions)
        for name, dimensions in (("images-idx3-ubyte", 3), ("labels-idx1-ubyte", 1))
    )
    if len(images) != len(labels):
        raise ValueError(f"{folder}: {len(images)} {part} images but {len(labels)} labels: expected as many")
    return _scaled(images[:, None]), labels.astype(np.int64)


def _idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An IDX file: two zero bytes, 8 for bytes, the number of dimensions, each size, then the bytes."""
    if not path.is_file():
        raise ValueError(f"{path.parent} lacks {path.name} (or its .gz): expected it beside the others")
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be read ({error}): fetch it again") from error
    head = _IDX_HEADER[dimensions]
    sizes = np.frombuffer(content[4:head], dtype=">u4").astype(int)
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) != head + int(np.prod(sizes)):
        raise ValueError(f"{path} is no whole IDX file of bytes in {dimensions} dimensions: fetch it again")
    return np.frombuffer(content, np.uint8, offset=head).reshape(sizes)


def _cifar(path: Path) -> tuple[NDArray[np.float32], Ints]:
    """The binary version: rows of a label and 3 x 32 x 32 bytes."""
    if not path.is_file():
        raise ValueError(
            f"{path} is missing: expected data_batch_1.bin to data_batch_5.bin and test_batch.bin"
        )
    content = np.fromfile(path, np.uint8)
    if len(content) == 0 or len(content) % _CIFAR_ROW:
        raise ValueError(f"{path} has {len(content)} bytes, no multiple of {_CIFAR_ROW}: fetch it again")
    rows = content.reshape(-1, _CIFAR_ROW)
    return _scaled(rows[:, 1:].reshape(-1, 3, 32, 32)), rows[:, 0].astype(np.int64)


def _scaled(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    return (pixels / np.float32(255)).astype(np.float32)


if __name__ == "__main__":
    cut_images, cut_labels = (
        _idx(Path(path), n)[:DIGITS] for path, n in zip(sys.argv[1:], (3, 1), strict=True)
    )
    np.savez_compressed(DIGITS_PATH, images=cut_images, labels=cut_labels)
