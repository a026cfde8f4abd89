"""Tests of training.federated.asynchronous."""
