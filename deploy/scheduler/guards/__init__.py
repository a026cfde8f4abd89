"""What bounds every choice: the guards of the simulation, and budgets."""
