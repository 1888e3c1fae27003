"""Time, random bytes, the end of the process, an installed token counter: what the engine finds around it.

Imports core. Used from outside: `Clock`, `SystemClock`, `entropy.random_hex`, `exits.run` and `installed`.
"""
