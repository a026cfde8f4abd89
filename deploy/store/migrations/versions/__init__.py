"""One file per version of the tables, in order; a released one never changes."""
