"""What is published of a trained policy."""

from __future__ import annotations

from training.studies.trained import find_trained


def test_a_released_policy_is_published_with_its_path_in_the_repository() -> None:
    (found,) = find_trained("spotweave", "liu2022/spotweave", "")
    assert found.path.is_absolute()
    assert found.facts()["path"] == "checkpoints/liu2022/spotweave/policy.pt"
