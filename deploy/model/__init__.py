"""What the live side talks about: jobs, tasks, offers, instances, events. Plain values, no behaviour."""
