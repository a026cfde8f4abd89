"""The service's HTTP side: decisions on request, jobs, what runs and what it costs, events, metrics."""
