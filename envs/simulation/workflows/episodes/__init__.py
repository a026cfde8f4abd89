"""A workflow carried out step by step on owned clusters and rented offers."""
