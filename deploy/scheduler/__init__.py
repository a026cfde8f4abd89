"""The live scheduler: from what really runs to a snapshot, a decision, and what is done about it."""
