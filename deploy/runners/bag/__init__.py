"""Bags of tasks: each command runs on an instance of its own, with a process of ours around it."""
