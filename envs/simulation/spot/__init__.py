"""One divisible job with a deadline on the spot zones of a recording: ticks, a guarantee, restart overhead."""
