"""Places for objects."""
