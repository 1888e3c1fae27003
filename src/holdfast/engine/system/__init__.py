"""Time, random bytes and the end of the process: what the engine takes from the operating system. Imports core.

Used from outside: `Clock`, `SystemClock`, `entropy.random_hex` and `exits.run`.
"""
