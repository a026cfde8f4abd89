"""Rules for federated tasks: what one task does, read off an observation (names: `agents.named`)."""
