"""Workflows over several clusters (Liu 2022, chapter 3): model, files, run times and simulated running."""
