"""What must survive a crash, in one database: jobs, instances, intents, decisions, events, prices, tokens."""
