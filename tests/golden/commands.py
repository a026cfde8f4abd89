"""Section `commands`: what every command says to --help, and to mistakes of its user."""

from __future__ import annotations

import io
import os
import re
import runpy
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.main import get_command

from spotweave.cli import app
from spotweave.envs.environments import ENVIRONMENTS

ROOT = Path(__file__).resolve().parents[2]
WIDE = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "xterm"}
OWN = re.compile(r"SPOTWEAVE_|FORCE_COLOR|PY_COLORS")
SCRIPTS = ("train", "evaluate", "compare", "repeat", "tune", "publish", "release", "results_fl")
MODULES = [*(f"-m spotweave.{name}" for name in (
    "training.studies.bags", "training.studies.workflows", "training.studies.asynchronous",
    "training.studies.spot", "deploy.node", "deploy.server.run",
    "deploy.providers.aws.catalogue", "deploy.providers.gcp.catalogue", "deploy.providers.gcp.build_prices",
)), "-m benchmarks"]  # fmt: skip
MISTAKES = """
training/train.py
training/train.py quick
training/train.py env=mars
training/train.py +env=multicluster sede=3
training/train.py +env=multicluster env.n_jbos=3
training/train.py +env=multicluster env.n_jobs=0
training/train.py +env=multicluster trainer.episodes=many
training/train.py +env=multicluster trainer=fast
training/train.py +env=multicluster agent=dqn
training/train.py +env=multicluster trainer.guide=mfa
training/train.py +env=multicluster device=tpu
training/train.py +env=multicloud agent.guide=tuned
training/train.py resume=nowhere
training/evaluate.py +env=multicloud
training/evaluate.py +env=multicloud checkpoint=nowhere
training/evaluate.py +env=multicloud policy=expected_cots
training/evaluate.py +env=multicloud checkpoint=liu2022/spotweave
training/evaluate.py +env=spot policy=on_demand env.work_h=0
training/evaluate.py +env=bags policy=bag_cost env.job=J7
training/evaluate.py +env=workflows policy=workflow_cost env.family=oak
training/evaluate.py +env=federated policy=round_cost env.scenario=nowhere
training/compare.py +env=multicluster policies=[maf,eff]
training/compare.py +env=multicluster policies=[rl_fc]
training/compare.py +env=multicluster policies=[rl_fc,maf]
training/compare.py +env=multicluster suite=exam
training/publish.py study=nothing
training/release.py run=nowhere name=x table=y
-m spotweave.training.studies.bags nonsense
spotweave traces nonsense
spotweave demo --config nowhere.yaml
spotweave jobs --server nonsense
spotweave jobs --server http://127.0.0.1:9
spotweave submit nowhere.yaml
spotweave check --config nowhere.yaml
spotweave serve --config nowhere.yaml
spotweave backup --config nowhere.yaml --to copy.db
spotweave token create --config nowhere.yaml --name me --role king
spotweave token list --config nowhere.yaml
spotweave plan bag nowhere.json env.json --deadline 2100
spotweave plan workflow nowhere.yaml
spotweave plan fl nowhere.json clouds.json
spotweave simulate bag nowhere.json
spotweave simulate fl nowhere
spotweave simulate async nowhere.yaml
spotweave plan split nowhere.yaml --clusters 3
spotweave clouds check --config nowhere.yaml
"""


def commands() -> list[str]:
    """Of every command its help or its settings, then what documented mistakes end with."""
    kept = {name: value for name, value in os.environ.items() if not OWN.match(name)}
    lines: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        patch.dict(os.environ, kept | WIDE, clear=True),
    ):
        for words in (*_spotweave(), *MODULES):
            lines += _said(f"{words} --help")
        for words in ("spotweave envs", "spotweave policies"):
            lines += _said(words)
        for name in SCRIPTS:
            lines += _said(f"training/{name}.py --help")
            lines += _said(f"training/{name}.py {'+env=chapter4 ' if name == 'train' else ''}--cfg job")
        for name in ENVIRONMENTS:
            lines += _said(f"training/evaluate.py +env={name} --cfg job --package env")
        for words in MISTAKES.strip().splitlines():
            lines += _said(words)
    return lines


def _spotweave() -> Iterator[str]:
    def below(command: Any, words: str) -> Iterator[str]:
        yield words
        for name, inner in sorted(getattr(command, "commands", {}).items()):
            # What follows these is theirs whose scripts they call.
            if name not in SCRIPTS:
                yield from below(inner, f"{words} {name}")

    return below(get_command(app), "spotweave")


def _said(command: str) -> Iterator[str]:
    code, text = _run(command.split())
    yield f"$ {command} -> {code}"
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).replace(str(ROOT), "ROOT").replace(os.getcwd(), "HERE")
    for line in text.splitlines():
        plain = " ".join(re.sub(r"[─│╭╮╰╯]+", " ", line).split())
        if plain:
            yield f"  {plain}"


def _run(words: list[str]) -> tuple[object, str]:
    """Exit code and output of a command, here as in a process of its own."""
    told, argv = io.StringIO(), words[1:]
    with patch.object(sys, "argv", words), redirect_stdout(told), redirect_stderr(told):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a module is run which was imported before
                if words[0] == "spotweave":
                    get_command(app).main(argv, prog_name="spotweave")
                elif words[0] == "-m":
                    sys.argv = [words[1], *argv[1:]]
                    runpy.run_module(words[1], run_name="__main__", alter_sys=True)
                else:
                    runpy.run_path(str(ROOT / words[0]), run_name="__main__")
        except SystemExit as ended:
            if isinstance(ended.code, str):
                return 1, f"{told.getvalue()}{ended.code}\n"
            return ended.code or 0, told.getvalue()
    return 0, told.getvalue()
