"""How agents learn: the trainers and the session that drives them."""
