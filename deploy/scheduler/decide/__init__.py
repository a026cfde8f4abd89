"""Who is asked about, what the policy answers, what becomes of it."""
