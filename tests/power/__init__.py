"""Power cuts: a machine under load is gone between two instructions, again and again.

Not part of ``make test``: it needs an emulator and half an hour or more.  ``make
test-power`` runs it.  ``WEIGHTD_POWER_CUTS`` says how many cuts, ``WEIGHTD_POWER_SEED``
which, ``WEIGHTD_POWER_CACHE`` where the kernel is kept (~/.cache/weightd-power).
"""
