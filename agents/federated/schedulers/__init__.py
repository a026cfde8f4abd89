"""Schedulers that plan a whole application: they need more than the observation of one task."""
