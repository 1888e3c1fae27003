"""Time, random ids and the end of the process: what the engine takes from the operating system. Imports only core.

Others use `Clock`, `SystemClock`, the entropy of `entropy`, and `exits`.
"""
