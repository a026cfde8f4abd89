"""Where independent tasks run: in this process, in processes of this machine, on a Ray cluster."""
