"""Commands that execute agents: one task, a worker, several worker processes. Imports cli/input."""
