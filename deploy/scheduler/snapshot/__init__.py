"""Build the snapshot that policies see from the store."""
