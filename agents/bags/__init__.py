"""Planners for bags of tasks under a deadline (Teylo 2021, chapters 6, 8 and 9)."""
