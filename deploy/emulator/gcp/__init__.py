"""What an emulated Google Cloud adds to what all emulated clouds have: Compute Engine's REST API."""
