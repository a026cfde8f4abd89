"""Tests of agents.federated.asynchronous."""
