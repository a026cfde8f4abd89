"""What every folder may use (files), and the command line, which may use every folder."""
