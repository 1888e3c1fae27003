"""Certify a server: does it keep what Holdfast promises? `python -m holdfast.testing postgresql://…`.

`certificate` runs everything, `suite` the conformance suite, `storm` processes of workers that are killed; `place`
makes the schemas in which all of it happens. Only schemas that it made are written to, and they are dropped in the end.
"""
