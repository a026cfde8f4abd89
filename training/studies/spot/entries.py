"""The entries for the UCB-ADRS/ADRS-Leaderboard: single.py and multi.py.

An entry is one file with NumPy and the standard library only: the text of the policy's own functions, the
model, and the two classes that the leaderboard asks for.
"""

from __future__ import annotations

import base64
import json
import re
import textwrap
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import numpy as np

from spotweave.agents.spot import belief, decide
from spotweave.agents.spot.model import SpotModel
from spotweave.agents.spot.policy import SpotPolicy
from spotweave.agents.stored import policy_file
from spotweave.envs.simulation.spot import ticks
from spotweave.envs.spot_episodes import (
    ON_DEMAND_USD_HOUR,
    SPOT_ANCHOR_USD_HOUR,
    RulesName,
    SpotConfig,
    build_spot,
)
from spotweave.training.checkpoint import load_policy
from spotweave.training.config import UsageError
from spotweave.training.files import prepare_directory, write_text

FIRST = {ticks: "NONE = 0", belief: "MEMORY = 8", decide: "@inner\ndef best_zone"}
"""First line of the part of a module that an entry carries."""

ENTRY = Path(__file__).with_name("entry.txt").read_text("utf-8")

LOOK = {
    "single": f"        up, usd_hour = [bool(has_spot)], [{SPOT_ANCHOR_USD_HOUR}]",
    "multi": """        up = env.get_all_regions_spot_available()
        usd_hour = [0.0 if usd is None else usd for usd in env.get_all_regions_spot_prices()]""",
}
ACT = {
    "single": "",
    "multi": """        # The job is parked where it runs, or ran last: that is the zone that is billed.
        if choice == SPOT:
            env.switch_region(zone)""",
}
TITLES: dict[str, tuple[RulesName, str, str, str]] = {
    "single": ("adrs_single", "cant_be_late", "strategy", "Strategy"),
    "multi": ("adrs_multi", "cant_be_late_multi", "multi_strategy", "MultiRegionStrategy"),
}


def carried(module: ModuleType) -> str:
    """The functions of a module as plain Python."""
    source = Path(str(module.__file__)).read_text("utf-8")
    source = source[source.index(FIRST[module]) :]
    return re.sub(r"^@(inner|njit\(.*\))\n", "", source, flags=re.MULTILINE).strip()


def entry_text(kind: str, model: SpotModel) -> str:
    """The text of an entry, "single" or "multi"."""
    _, problem, module, base = TITLES[kind]
    beliefs = model.beliefs
    facts: dict[str, object] = {"beliefs": [array.tolist() for array in beliefs.arrays]}
    facts |= {"risk": beliefs.risk, "crowd": beliefs.crowd, "tick_s": beliefs.tick_s}
    facts |= {"restarts_s": model.restarts_s.tolist(), "work_step_s": model.work_step_s}
    facts |= {"shape": list(model.table.shape)}
    table = base64.b64encode(zlib.compress(np.ascontiguousarray(model.table).tobytes(), 9)).decode()
    text = ENTRY.format(
        problem=problem,
        module=module,
        base=base,
        functions="\n\n\n".join(carried(part) for part in FIRST),
        facts="\n".join(textwrap.wrap(json.dumps(facts), 100)),
        table="\n".join(textwrap.wrap(table, 100)),
        name="SpotweaveOneZone" if kind == "single" else "SpotweaveZones",
        label=f"spotweave_{kind}",
        look=LOOK[kind],
        on_demand=ON_DEMAND_USD_HOUR,
        act=ACT[kind],
    )
    return text.replace("        )\n\n        return (", "        )\n        return (")


def write_entries(checkpoints: Mapping[str, str], out: Path) -> None:
    """Write the entries of two checkpoints, "single" and "multi", to a directory.

    Raises:
        UsageError: for a checkpoint that holds another policy.
    """
    for kind, checkpoint in checkpoints.items():
        spec = build_spot(SpotConfig(rules=TITLES[kind][0])).spec
        policy = load_policy(policy_file(checkpoint), spec)
        if not isinstance(policy, SpotPolicy):
            raise UsageError(f"{checkpoint} holds no policy of agent=spot_values: train one with +env=spot")
        path = prepare_directory(out) / f"{kind}.py"
        write_text(path, entry_text(kind, policy.network))
        print(f"written: {path} ({path.stat().st_size / 1000:.0f} kB)")
