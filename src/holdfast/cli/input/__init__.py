"""What people type: values, agents, changes to tasks, and the commands suggested to them.

Imports cli and cli/show.
"""
