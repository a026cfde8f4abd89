"""Who may use the service, and how it keeps its secrets: keys, tokens, certificates, where it listens."""
