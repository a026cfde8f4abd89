"""Access and secrets of the service: keys, tokens, certificates, listen addresses, sandbox."""
