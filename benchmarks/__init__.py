"""How fast Holdfast is, beside the same work done with bare SQLite. Run `python -m benchmarks`."""
