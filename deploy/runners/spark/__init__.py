"""Spark jobs on a standalone cluster: one master, a worker on each instance, drivers on our machine."""

from deploy.runners.spark.runner import SparkRunner
from deploy.runners.spark.settings import SparkSettings

__all__ = ["SparkRunner", "SparkSettings"]
