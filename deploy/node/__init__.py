"""The agent that runs on every instance, and the scheduler's side of the conversation with it."""
