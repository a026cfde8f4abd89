"""Asynchronous training: nobody waits for the slowest client (Liu 2022, chapters 6 and 7)."""
