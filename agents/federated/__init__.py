"""Policies for federated work: rules, schedulers of whole applications, mapping, and a learned scorer."""
