"""Recorded markets and workloads: the committed bundle, users' own traces, fitted distributions.

`bundle` serves what ships with the package, `format` reads and writes the documented trace format
(docs/traces.md), `importers` turns foreign files into it, `fitted` holds distributions whose source data
may not be shipped. `spotweave traces --help` lists the commands.
"""
