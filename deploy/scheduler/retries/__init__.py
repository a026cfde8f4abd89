"""What came to nothing: when and where it is tried again."""
