"""Policies that carry out a workflow step by step on owned clusters and rented offers."""
