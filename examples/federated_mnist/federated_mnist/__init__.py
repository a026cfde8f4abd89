"""Federated training of a small network on handwritten digits."""
