"""From the store to the snapshot that policies see."""
