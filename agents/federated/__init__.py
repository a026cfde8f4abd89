"""Policies for federated work: rules, schedulers of whole applications, mapping, and what `mtdqn` sees."""
