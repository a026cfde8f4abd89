"""Federated trainings with Flower: a SuperLink per job here, a SuperNode per client on its instance."""
