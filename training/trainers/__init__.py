"""Trainers of agents, and the session that drives them."""
