"""What decides: rules of the literature, networks, agents, and everything for federated work."""
