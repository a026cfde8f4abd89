"""What a user may get wrong with training: one clear line, exit code 2, no traceback, nothing lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest
import torch

from tests.training.commands import TINY, TINY_WORLD, Command

CLUSTER = "+env=multicluster"


def test_environments_are_listed_as_if_no_setting_were_given(command: Command) -> None:
    assert command("seed=3") == command()


@pytest.mark.real
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((CLUSTER, "env.workload.arivals.b=3"), "unknown key env.workload.arivals: did you mean"),
        ((CLUSTER, "trainer.episods=3"), "unknown key trainer.episods: did you mean 'episodes'?"),
        ((CLUSTER, "out=5"), "out is 5"),
        (
            (CLUSTER, "trainer.variety.share=0.5"),
            "trainer.variety.share is 0.5: expected 0, other markets are drawn in +env=multicloud",
        ),
        ((CLUSTER, "trainer.variety.share=2"), "trainer.variety.share is 2: input should be less than"),
        ((CLUSTER, "trainer.variety.owned=[0,4]"), "trainer.variety.owned: expected two bounds [a, b] with"),
        ((CLUSTER, "trainer.variety.load=[2,1]"), "trainer.variety.load: expected two bounds [a, b] with"),
        ((CLUSTER, "ray.address=auto"), "ray.address=auto was given to engine=local: use engine=ray"),
        ((CLUSTER, "env.n_jobs=[1"), "cannot read env.n_jobs=[1: quote the value"),
    ],
)
def test_one_clear_line(command: Command, arguments: tuple[str, ...], message: str) -> None:
    assert message in command(*arguments).mistake


def test_cuda_that_is_not_there(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    mistake = command(CLUSTER, "device=cuda").mistake
    assert "offers no CUDA device: use device=auto" in mistake


@pytest.mark.real
def test_settings_are_checked_before_anything_is_written(command: Command, tmp_path: Path) -> None:
    for wrong in ("device=tpu", "trainer.lanes=0", "agent.weights=[nan,1,1]", "seed=-1", "trainer.guide=x"):
        assert command(CLUSTER, wrong, "out=run").mistake
    assert list(tmp_path.iterdir()) == []


class TestDirectories:
    def test_below_a_file(self, command: Command, tmp_path: Path) -> None:
        (tmp_path / "taken").write_text("x")
        mistake = command(*TINY, "out=taken/run").mistake
        assert "cannot write into taken/run: Not a directory. Give a directory" in mistake

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_not_writable(self, command: Command, tmp_path: Path) -> None:
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "Permission denied" in command(*TINY, "out=locked/run").mistake

    def test_that_holds_a_run_already(self, command: Command, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "state.pt").write_text("precious")
        mistake = command(*TINY, "out=run").mistake
        assert "run already holds a run: resume it with resume=run, or give another out=" in mistake
        assert (tmp_path / "run" / "state.pt").read_text() == "precious"

    @pytest.mark.real
    def test_a_full_disk_is_told_in_one_line_and_keeps_what_was_saved(
        self, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        assert command(*TINY, "out=run", "trainer.episodes=2").code == 0
        before = (tmp_path / "run" / "state.pt").read_bytes()
        text = (tmp_path / "run" / "config.yaml").read_text()
        (tmp_path / "run" / "config.yaml").write_text(text.replace("episodes: 2\n", "episodes: 4\n", 1))

        def full(state: object, target: IO[bytes]) -> None:
            if isinstance(target, pa.NativeFile):  # that of state.pt
                target.write(b"half of it")
                raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
            torch.serialization.save(state, target)

        monkeypatch.setattr("spotweave.training.checkpoint.torch.save", full)
        outcome = command("resume=run")
        assert "state.pt: No space left on device. Nothing was lost there; free some space" in outcome.mistake
        assert (tmp_path / "run" / "state.pt").read_bytes() == before


class TestResuming:
    @pytest.mark.usefixtures("finished_run")
    def test_another_environment(self, command: Command) -> None:
        mistake = command("resume=run", "+env=multicloud", *TINY_WORLD["multicloud"]).mistake
        assert "run is a run of +env=multicluster, not of +env=multicloud" in mistake

    @pytest.mark.parametrize(
        ("name", "change", "message"),
        [
            ("state.pt", lambda content: content[:500], "run/state.pt is not a readable checkpoint"),
            (
                "config.yaml",
                lambda content: content.replace(b"shared_size: 16", b"shared_size: 32"),
                "run/state.pt does not fit run/config.yaml",
            ),
            ("config.yaml", lambda _: b"a: [1\nb: {", "run/config.yaml cannot be read"),
            (
                "config.yaml",
                lambda _: b"env: {name: multicluster}\npolicies: [maf, eft]\n",
                "its config.yaml is not that of a training run",
            ),
        ],
    )
    def test_a_file_that_was_changed(
        self, command: Command, finished_run: Path, name: str, change: Callable[[bytes], bytes], message: str
    ) -> None:
        file = finished_run / name
        file.write_bytes(change(file.read_bytes()))
        assert message in command("resume=run").mistake
