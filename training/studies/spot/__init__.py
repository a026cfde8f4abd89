"""One job on spot zones: what policies pay next to the clairvoyant bound, and the leaderboard entries."""
