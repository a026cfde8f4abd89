"""The commands for federated applications: simulate, plan, measure."""
