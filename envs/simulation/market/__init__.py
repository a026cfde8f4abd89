"""The market world: jobs on spot, on-demand and owned capacity over several clouds, event by event."""
