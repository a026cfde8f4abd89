"""Instances on this machine: real processes, recorded markets, real interruptions."""
