"""Holdfast beside others that do the same, at the same durability. Run `make bench-peers`."""
