"""Workflows: each step is a Spark application on the cluster of a region; files move between clusters."""
