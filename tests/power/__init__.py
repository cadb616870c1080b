"""Power cuts: a machine under load is gone between two instructions, again and again.

Not part of ``make test``: it needs an emulator and tens of minutes.  `make
test-power` runs it.
"""
