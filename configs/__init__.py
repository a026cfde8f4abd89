"""Hydra configuration groups (YAML only)."""
