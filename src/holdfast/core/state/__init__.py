"""State is a fold over the log. Imports events and the codec.

`shapes` says what state consists of; `fold` has `evolve`, the only code that changes it; `rules` what may follow what;
`summary` the row a list shows; `budget` limits and spending; `merge` changes of several writers; `contract` state as
JSON that people write.
"""
