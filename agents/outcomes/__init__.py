"""The agent `outcomes`: values of a job's own outcome on each offer, learned from what became of jobs."""
