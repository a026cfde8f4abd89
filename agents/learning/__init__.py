"""Learning: replay, exploration, regression of values and outcomes, evolution."""
