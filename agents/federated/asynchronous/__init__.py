"""Asynchronous federated learning: shards, brokers and aggregators, the same live and in simulation."""
