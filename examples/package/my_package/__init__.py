"""Examples of everything that a package can add to Spotweave."""
