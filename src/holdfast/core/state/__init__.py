"""State is a fold over the log. Imports events and the codec.

`shapes` says what state consists of; `fold` has `evolve`, the only code that changes it; `rules` says what may follow
what; `summary` is the row a list shows; `budget` has limits and spending; `merge` changes of several writers; `patch`
and `contract` are state as JSON.
"""
