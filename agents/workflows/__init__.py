"""Planners of workflows over several clusters, and the division of steps."""
