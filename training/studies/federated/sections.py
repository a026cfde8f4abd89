"""The parts of the two pages: how each is made, and what it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from training.studies.federated import mapping, pictures, spot_cases, table_one, zones
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
from training.studies.page import Section

FEDCOSTAWARE, MULTI_FEDLS = "fedcostaware", "multi-fedls"
PAGES = (FEDCOSTAWARE, MULTI_FEDLS)


@dataclass(frozen=True)
class StudySection(Section):
    """One block of a page.

    Attributes:
        make: plays and computes; besides plain values it may give `episodes`, (case, policy, episodes) for a
            CSV file, and `pictures`, PNG files by name.
        page: the page's name.
        plays_learned: whether it depends on the learned policy.
        episodes: how many episodes, or sets of runs, it has unless another number is asked for; 0 for none.
    """

    make: Callable[[Study], dict[str, Any]]
    page: str
    plays_learned: bool = False
    episodes: int = 0


SECTIONS: dict[str, StudySection] = {
    table_one.SECTION: StudySection(table_one.make, table_one_body, FEDCOSTAWARE, True, table_one.EPISODES),
    table_one.SENSITIVITY: StudySection(
        table_one.make_sensitivity, sensitivity_body, FEDCOSTAWARE, True, table_one.EPISODES
    ),
    pictures.STATES: StudySection(pictures.make_states, states_body, FEDCOSTAWARE, True),
    pictures.COSTS: StudySection(pictures.make_costs, costs_body, FEDCOSTAWARE, True),
    zones.SECTION: StudySection(zones.make, zones_body, FEDCOSTAWARE, True, zones.EPISODES),
    mapping.SECTION: StudySection(mapping.make, mapping_body, MULTI_FEDLS),
    mapping.SCALING: StudySection(mapping.make_scaling, scaling_body, MULTI_FEDLS),
    mapping.REVOCATIONS: StudySection(
        mapping.make_revocations, revocations_body, MULTI_FEDLS, episodes=mapping.SETS
    ),
    spot_cases.SECTION: StudySection(
        spot_cases.make, spot_cases_body, MULTI_FEDLS, True, spot_cases.EPISODES
    ),
}
"""By name, in the order in which they are made; a name is also the block's marker and its files' name."""
