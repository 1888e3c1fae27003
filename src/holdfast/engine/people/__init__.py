"""Users and threads: state that outlives a task, and erasing it. Imports control and logs.

Others use `User` and `Thread`.
"""
