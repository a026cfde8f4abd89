"""Google Compute Engine as a provider."""
