"""The pure part: no IO, no clock, no chance."""
