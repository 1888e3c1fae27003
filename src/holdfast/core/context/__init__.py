"""What a model is shown: message windows, slices of state, templates. Imports messages and state.

Others use `window`, `slice_context`, `Transcript` and `template.render`.
"""
