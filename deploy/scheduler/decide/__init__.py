"""Decisions: which tasks are due, what the policy answers, and what is recorded."""
