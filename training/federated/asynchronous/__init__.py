"""Asynchronous federated learning in virtual time: real gradients, drawn response times."""
