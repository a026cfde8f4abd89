"""Bags of independent tasks on spot, on-demand and burstable VMs under a deadline (Teylo 2021)."""
