"""Comparators from libraries: Stable-Baselines3, sb3-contrib and RLlib behind the project's own commands."""
