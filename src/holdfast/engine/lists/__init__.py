"""Many tasks, and one task over time: lists, the feed of changes, what each event changes.

`query` is lists, `feed` reads changes for all who listen, `watch` gives them, `deltas` is what an event changes,
`waterfall` how a task went in time, `comparing` two tasks side by side.
"""
