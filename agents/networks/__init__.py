"""Value networks: from one observation to the value components of every (job, cluster) choice."""
