"""What bounds every policy, simulated and live: a safety net for deadlines, a gain test of moves, budgets.

Guards are pure functions of the rows that a policy saw. The market world applies them to each action and the
live loop to each decision, so that a policy is trained, measured and served inside the same bounds.
"""
