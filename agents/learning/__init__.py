"""Learning: replay, exploration, regression of values."""
