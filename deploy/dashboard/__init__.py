"""The dashboard at `/`: one page without anything from elsewhere, and the one request that it makes."""
