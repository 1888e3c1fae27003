"""What a model is shown: message windows, slices of state, templates. Imports messages and state.

Used from outside: `window.window`, `slices.slice_context`, `transcript` (what a model is asked to summarise) and
`template.render`.
"""
