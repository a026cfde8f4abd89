"""The commands for workflows over several clusters."""
