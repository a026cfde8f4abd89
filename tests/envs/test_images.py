"""Images of a folder, or of the package."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from envs.traces.images import load_digits, load_images


def idx(content: np.ndarray) -> bytes:
    """An IDX file as its description says: magic number with type 8 (bytes), sizes big-endian, bytes."""
    return struct.pack(f">BBBB{content.ndim}I", 0, 0, 8, content.ndim, *content.shape) + content.tobytes()


def write_mnist(folder: Path, part: str, count: int, *, compress: bool) -> np.ndarray:
    images = np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = (np.arange(count) % 10).astype(np.uint8)
    for name, content in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
        data = idx(content)
        (folder / (name + ".gz" * compress)).write_bytes(gzip.compress(data) if compress else data)
    return images


def test_the_digits_of_the_package() -> None:
    images, labels = load_digits()
    assert images.shape == (2000, 28, 28)
    assert images.min() == 0
    assert images.max() == 1
    # The MNIST test set begins with these.
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    loaded = load_images(None)
    assert loaded.training.shape == (1500, 1, 28, 28)
    assert np.array_equal(loaded.test[:, 0], images[1500:])


@pytest.mark.parametrize("compress", [False, True])
def test_a_test_set_alone_is_divided(tmp_path: Path, compress: bool) -> None:
    images = write_mnist(tmp_path, "t10k", 10, compress=compress)
    loaded = load_images(tmp_path)
    # Every fifth, the images 4 and 9, are for tests.
    assert loaded.test_labels.tolist() == [4, 9]
    assert loaded.training_labels.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert np.allclose(loaded.test[1, 0], images[9] / 255)


def test_with_a_training_set_nothing_is_divided(tmp_path: Path) -> None:
    write_mnist(tmp_path, "t10k", 10, compress=False)
    training = write_mnist(tmp_path, "train", 15, compress=True)
    loaded = load_images(tmp_path)
    assert (len(loaded.training), len(loaded.test)) == (15, 10)
    assert np.allclose(loaded.training[:, 0], training / 255)


def test_the_binary_version_of_cifar_10(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for number, name in enumerate([*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]):
        rows = generator.integers(0, 256, (2, 3073), dtype=np.uint8)
        rows[:, 0] = number
        rows.tofile(tmp_path / name)
    loaded = load_images(tmp_path)
    assert loaded.training.shape == (10, 3, 32, 32)
    assert loaded.training_labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    # A row is its label, then the red, the green and the blue channel, line by line.
    assert loaded.test[1, 2, 0, 1] == np.float32(rows[1, 1 + 2 * 1024 + 1] / 255)
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(ValueError, match=r"data_batch_3\.bin is missing"):
        load_images(tmp_path)


def test_a_damaged_or_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has neither"):
        load_images(tmp_path)
    write_mnist(tmp_path, "t10k", 10, compress=False)
    whole = (tmp_path / "t10k-images-idx3-ubyte").read_bytes()
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="no whole IDX file"):
        load_images(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((9, 28, 28), np.uint8)))
    with pytest.raises(ValueError, match="9 t10k images but 10 labels"):
        load_images(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(ValueError, match="lacks t10k-labels-idx1-ubyte"):
        load_images(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(b"not gzip")
    with pytest.raises(ValueError, match="cannot be read"):
        load_images(tmp_path)
