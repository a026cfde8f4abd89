"""The slice world: several clusters with local queues, in time slices (Liu 2022, chapters 4 and 5)."""
