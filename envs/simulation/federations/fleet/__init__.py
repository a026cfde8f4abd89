"""Several federated applications at once that share offers and quotas (Brum 2023, section 8.3)."""
