"""The tables and pictures of federated work: Sinha 2025 (FedCostAware) and Brum 2023 (Multi-FedLS)."""
