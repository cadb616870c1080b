"""Where weights come from on a miss: a reference -> a listing -> bytes.

Every origin blocks and is called from threads.  None knows the store, the
ledger or the event loop; one contract (`weightd.origins.contract`), which one
suite of tests holds every one of them to.
"""
