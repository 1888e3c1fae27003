"""Users and threads: state that outlives a task, and erasing it. Imports control and logs.

Used from outside: `User` and `Thread`.
"""
