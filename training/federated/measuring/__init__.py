"""Measuring the slowdowns of a machine and of a link with a dummy application (Brum 2023, section 6.1)."""
