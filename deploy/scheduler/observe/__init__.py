"""What really is: offers, instances, nodes, and what runners say of tasks."""
