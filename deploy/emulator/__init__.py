"""Clouds on this machine: markets that move, capacity that ends, interruptions on a clock, bills."""
