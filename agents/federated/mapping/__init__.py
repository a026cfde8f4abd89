"""Initial mapping of federated applications: exact and heuristic placements before the first round."""
