"""Files of users that describe bags, workflows and federated applications, read and checked."""
