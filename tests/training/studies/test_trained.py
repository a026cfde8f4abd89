"""What is published of a trained policy."""

from __future__ import annotations

import pytest

from training.studies.trained import NotTrainedError, find_trained


def test_a_released_policy_is_published_with_its_path_in_the_repository() -> None:
    (found,) = find_trained("spotweave", "liu2022/spotweave", "")
    assert found.path.is_absolute()
    assert found.facts()["path"] == "checkpoints/liu2022/spotweave/policy.pt"


def test_a_run_that_is_not_there_is_told_with_the_command_that_trains_it() -> None:
    message = r"agent one: no checkpoint at runs/none/seed0, .*\. Train it: make it$"
    with pytest.raises(NotTrainedError, match=message):
        find_trained("one", "runs/none/seed0", "make it")
