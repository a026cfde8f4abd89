"""docs/results/liu2022-async.md holds what is stored next to it, and what the study measures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from scipy.stats import binomtest
from typer.testing import CliRunner

from spotweave.agents.federated.asynchronous.brokers import decode, split
from spotweave.envs.traces.images import load_images
from spotweave.training.federated.asynchronous.scenario import read_scenario
from spotweave.training.studies.asynchronous import __main__ as command
from spotweave.training.studies.asynchronous import comparisons, privacy
from spotweave.training.studies.asynchronous.comparisons import comparison
from tests.training.federated.commands import SYN_AND_ASYN

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "asynchronous"

TINY = SYN_AND_ASYN.replace("milestones: [0.05]", "milestones: [0.05, 0.999]")


@pytest.mark.parametrize("name", [path.stem for path in sorted(EXAMPLES.glob("*.yaml"))])
def test_every_shipped_scenario_can_be_read(name: str) -> None:
    scenario = read_scenario(EXAMPLES / f"{name}.yaml")
    assert scenario.participants in (10, 100)


def test_an_update_tells_its_digits_and_one_brokers_shard_does_not() -> None:
    scenario = read_scenario(EXAMPLES / "scenario_a.yaml")
    network, updates, digits = privacy.first_updates(scenario, load_images(None), seed=3)
    plain = privacy.guessed_share(lambda update: update, list(updates), digits, network)
    assert plain > 0.9
    # Each of 4 splits per update is a trial; who guesses blindly is right in len(held) / 10 of the cases.
    blind = float(np.mean([len(held) for held in digits]) / 10)
    trials = 4 * len(updates)
    for broker in range(2):
        hits = sum(
            round(
                len(updates)
                * privacy.guessed_share(
                    lambda update, broker=broker: decode(split(update, 2)[broker]),  # type: ignore[misc]
                    list(updates),
                    digits,
                    network,
                )
            )
            for _ in range(4)
        )
        assert binomtest(hits, trials, blind, alternative="greater").pvalue > 1e-5


@pytest.mark.real
def test_a_section_is_measured_kept_and_written_beside_the_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    page = tmp_path / "liu2022-async.md"
    page.write_text("<!-- table_6_1 -->\n<!-- end -->\n", encoding="utf-8")
    tiny = comparison("tiny", {"asyn": ["0.987", "7.81e4", "5.8"]})
    monkeypatch.setattr(comparisons, "EXAMPLES", tmp_path)
    monkeypatch.setattr(comparisons, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(command, "PAGE", page)
    monkeypatch.setattr(command, "STUDIES", {"table_6_1": tiny})
    app = typer.Typer()
    app.command()(command.main)
    result = CliRunner().invoke(app, ["--seeds", "2"])
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "liu2022-async" / "table_6_1.json").read_text(encoding="utf-8"))
    assert (tmp_path / "liu2022-async" / "table_6_1.png").is_file()
    text = page.read_text(encoding="utf-8")
    assert "| *0.987* |" in text
    assert "| never |" in text  # 0.999 after 50 updates
    speed_up = document["methods"]["asyn"]["speed_up"]
    times = [document["methods"][name]["training_slices"] for name in ("syn", "asyn")]
    assert speed_up["mean"] == pytest.approx(np.exp(np.mean(np.log(np.divide(*times)))))
    # Again: nothing is trained, and the same comes out.
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()}
    assert len(kept) == 4
    assert CliRunner().invoke(app, ["--seeds", "2"]).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()} == kept
    assert page.read_text(encoding="utf-8") == text
    assert CliRunner().invoke(app, ["--check"]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table_1"], "there is no section 'table_1': use figure_6_5, table_6_1"),
        (["--data", "/nowhere"], "/nowhere has neither"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str) -> None:
    app = typer.Typer()
    app.command()(command.main)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
