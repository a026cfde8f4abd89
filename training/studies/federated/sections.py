"""The parts of the two pages: how each is made, and what it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from training.studies.federated import mapping, pictures, sensitivity, spot_cases, table_one, zones
from training.studies.federated.markdown import (
    costs_body,
    mapping_body,
    revocations_body,
    scaling_body,
    sensitivity_body,
    spot_cases_body,
    states_body,
    table_one_body,
    zones_body,
)
from training.studies.federated.playing import Study

FEDCOSTAWARE, MULTI_FEDLS = "fedcostaware", "multi-fedls"
PAGES = (FEDCOSTAWARE, MULTI_FEDLS)


@dataclass(frozen=True)
class Section:
    """One block of a page.

    Attributes:
        page: the page's name.
        make: plays and computes; besides plain values it may give `episodes`, (case, policy, episodes) for a
        CSV
            file, and `pictures`, PNG files by name.
        body: the block, from the stored document alone.
        plays_learned: whether it depends on the learned policy.
        episodes: how many episodes, or sets of runs, it has unless another number is asked for; 0 for none.
    """

    page: str
    make: Callable[[Study], dict[str, Any]]
    body: Callable[[Mapping[str, Any]], str]
    plays_learned: bool = False
    episodes: int = 0


SECTIONS: dict[str, Section] = {
    table_one.SECTION: Section(FEDCOSTAWARE, table_one.make, table_one_body, True, table_one.EPISODES),
    sensitivity.SECTION: Section(
        FEDCOSTAWARE, sensitivity.make, sensitivity_body, True, sensitivity.EPISODES
    ),
    pictures.STATES: Section(FEDCOSTAWARE, pictures.make_states, states_body, True),
    pictures.COSTS: Section(FEDCOSTAWARE, pictures.make_costs, costs_body, True),
    zones.SECTION: Section(FEDCOSTAWARE, zones.make, zones_body, True, zones.EPISODES),
    mapping.SECTION: Section(MULTI_FEDLS, mapping.make, mapping_body),
    mapping.SCALING: Section(MULTI_FEDLS, mapping.make_scaling, scaling_body),
    mapping.REVOCATIONS: Section(
        MULTI_FEDLS, mapping.make_revocations, revocations_body, episodes=mapping.SETS
    ),
    spot_cases.SECTION: Section(MULTI_FEDLS, spot_cases.make, spot_cases_body, True, spot_cases.EPISODES),
}
"""By name, in the order in which they are made; a name is also the block's marker and its files' name."""
