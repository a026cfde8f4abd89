"""Plain-Python simulators that the compiled worlds must equal, bit for bit."""
