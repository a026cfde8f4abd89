"""Spark jobs on a standalone cluster: one master, a worker on each instance, drivers on our machine."""
