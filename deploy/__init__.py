"""The live side: policy server, scheduler loop, providers and runners. Nothing imports this package."""
