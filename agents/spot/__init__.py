"""A learned policy for one job on spot zones that is never late: hazards of zones, and values of slack."""
