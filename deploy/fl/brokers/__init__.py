"""Brokers between clients and server: each sees one shard of every update (Liu 2022, chapter 6)."""
