"""Where the tasks of federated applications run: exact and heuristic placements before the first round."""
