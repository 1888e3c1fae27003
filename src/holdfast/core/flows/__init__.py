"""What a verb does, written once, as generators that yield requests and never act. Imports state.

`requests` is the closed list of what a flow may ask for; `step` is steps and calls, `doubt` calls whose outcome is
unknown, `waits` people, signals, time and children, `lifecycle` a task from first turn to end, `spending` budgets.
"""
