"""How policies are measured: suites, episodes, paired statistics, reports."""
