"""What makes tasks run on nodes: Spark and Flower, behind `base.Runner`."""
