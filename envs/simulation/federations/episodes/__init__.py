"""Federated applications as episodes of decisions: the world behind `spotweave/Federated-v1`."""
