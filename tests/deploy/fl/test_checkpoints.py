"""What is chosen to go on from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from deploy.fl import checkpoints
from deploy.fl.checkpoints import Checkpoint
from tests.deploy.fl.fake_grid import kept


def weights(number: int, source: str = "server") -> Checkpoint:
    return Checkpoint(number, {"layer.0/weight": np.full((2, 3), number, dtype=np.float32)}, source)


def test_what_is_kept_is_what_was_saved(tmp_path: Path) -> None:
    arrays: dict[str, NDArray[np.generic]] = {
        "b": np.arange(6, dtype=np.float64).reshape(2, 3),
        "a": np.array([1, 2], dtype=np.int32),
        "file": np.array(7.5, dtype=np.float16),
    }
    checkpoints.save(tmp_path, Checkpoint(4, arrays))
    found = kept(tmp_path)
    assert found.round == 4
    assert list(found.arrays) == ["b", "a", "file"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
        assert found.arrays[name].dtype == array.dtype


def test_the_newest_is_loaded_and_old_ones_go(tmp_path: Path) -> None:
    for number in (1, 2, 9, 10, 11):
        checkpoints.save(tmp_path, weights(number))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-000010.npz", "round-000011.npz"]
    assert kept(tmp_path).round == 11


@pytest.mark.parametrize("harm", ["truncate", "flip", "empty"])
def test_a_broken_file_is_passed_over_for_the_one_before(tmp_path: Path, harm: str) -> None:
    checkpoints.save(tmp_path, weights(1))
    checkpoints.save(tmp_path, weights(2))
    path = tmp_path / "round-000002.npz"
    content = path.read_bytes()
    flipped = content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]
    path.write_bytes({"truncate": content[:-1], "flip": flipped, "empty": b""}[harm])
    assert kept(tmp_path).round == 1


def test_nothing_is_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoints.load(tmp_path) is None
    assert checkpoints.load(tmp_path / "missing") is None
    assert checkpoints.newest([None, None]) is None


def test_a_clients_newer_checkpoint_wins_and_the_servers_of_equals() -> None:
    server, client, other = weights(3), weights(3, "client a"), weights(4, "client b")
    assert checkpoints.newest([server, client]) is server
    assert checkpoints.newest([server, client, other]) is other
    assert checkpoints.newest([None, client]) is client
