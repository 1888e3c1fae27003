"""The documents Holdfast is built from, item by item: one test an item."""
