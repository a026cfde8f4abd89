"""What follows from decisions and from what was seen, as intents that are done."""
