"""Writes the pages of the docs that are made of the code: `python -m tools.reference docs`."""
