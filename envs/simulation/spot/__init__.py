"""One divisible job with a deadline on spot zones: ticks, a guarantee, restart overhead."""
