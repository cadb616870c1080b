"""The ``weightd`` command: ``serve`` goes to the daemon, all else to the client.

One module per command, imported only when that command runs, so that each is
as light to start as what it does.
"""
