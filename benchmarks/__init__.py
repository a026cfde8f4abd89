"""Speed and memory against stated bars: `python -m benchmarks` (or `make bench`). One file per benchmark."""
