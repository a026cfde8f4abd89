"""The simulation core, which trains policies, as the cloud and the runner of the live loop."""
