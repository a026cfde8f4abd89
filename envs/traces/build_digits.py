"""Cut `digits.npz` out of the MNIST test set: `python -m envs.traces.build_digits IMAGES.gz LABELS.gz`.

The files are t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz of https://github.com/fgnt/mnist, commit
ae608a0 (big-endian IDX: a header of 16 and 8 bytes, then bytes).
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np

COUNT = 2000
SIDE = 28


def main(images_file: Path, labels_file: Path) -> None:
    """Write the first images and their labels into data."""
    images = np.frombuffer(gzip.decompress(images_file.read_bytes()), dtype=np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress(labels_file.read_bytes()), dtype=np.uint8, offset=8)
    np.savez_compressed(
        Path(__file__).parent / "data" / "digits.npz",
        images=images.reshape(-1, SIDE, SIDE)[:COUNT],
        labels=labels[:COUNT],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
