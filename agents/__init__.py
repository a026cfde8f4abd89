"""Everything that implements Policy: rules of the literature, networks, agents, planners."""
