"""weightd: a node-local cache for model weights, within a byte budget.

The floors, from the ground up, are ``errors``, ``units``, ``model``, ``places`` and
``failpoints``; ``ledger``, ``origins`` and ``store``; ``cache`` and ``wire``; ``api``,
``client`` and ``settings``; ``daemon``; ``cli``.  A module imports from floors below
its own only; ``lint-imports`` checks it.
"""

__version__ = "0.1.0"
