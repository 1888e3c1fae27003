"""Traces as a fold of the log: which spans follow from which events. Pure: the same log gives the same spans and ids.

`span` has the shapes and the ids, `attributes` the names by which other programs know what is in them, `fold` the fold.
"""
