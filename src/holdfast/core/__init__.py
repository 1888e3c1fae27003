"""The pure part: no IO, no clock, nothing at random. Imports nothing of Holdfast outside core.

Its packages, bottom to top: errors, events, codec, state, messages, context, flows. Beside them: limits, names of logs,
durations, retries, phases, cron times, and the wording of events.
"""
