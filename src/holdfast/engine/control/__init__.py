"""What people and other tasks do to a task: answers, signals, patches, cancellation. Imports logs and reading.

Others use `change signal answer approval settle patch cancel`, `append` and the policy for lost events, `divergence`.
"""
