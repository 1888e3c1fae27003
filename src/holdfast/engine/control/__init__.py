"""What people and other tasks do to a task: answers, signals, patches, cancellation. Imports logs and reading.

Used from outside: `change.change`, which applies what `answers`, `patches` and `lifecycle` decide; `append` (events by
hand); `late_results`; and `divergence`, the policy for logs that lost events.
"""
