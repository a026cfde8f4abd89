"""Policies for tasks that train in rounds: the expected cost of each choice, rules, and a learned policy."""
