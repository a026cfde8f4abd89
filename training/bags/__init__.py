"""Commands for bags of tasks (Teylo 2021)."""
