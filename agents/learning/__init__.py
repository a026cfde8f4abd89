"""Learning: replay, exploration, value regression and counterfactual labels."""
