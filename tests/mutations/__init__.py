"""Mutations: faults that are put into the code on purpose, to see that tests find them."""
