"""The label of a node that has a model: `weightd.io/model.NAME`, as Kubernetes allows it.

What follows the slash of a label's key has at most 63 characters, letters, digits, ``-``, ``_``
and ``.``, and begins and ends with a letter or digit.  A model's key may be longer, ends as it
likes, and has ``/`` and ``@``.
"""

from __future__ import annotations

import re
from typing import Final

PREFIX: Final = "weightd.io/model."

NAME_MOST: Final = 63 - len("model.")
"""Characters that are left for the model."""

_HASH_DIGITS: Final = 10
_READABLE_MOST: Final = NAME_MOST - _HASH_DIGITS - 1

_READS_BACK: Final = re.compile(r"[A-Za-z0-9._-]*[A-Za-z0-9]", re.ASCII)
_LOOKS_HASHED: Final = re.compile(rf".*-[0-9a-f]{{{_HASH_DIGITS}}}", re.ASCII)


def label_of(key: str) -> str:
    """The label's key; its value is ``true``.  ``key`` is a valid one.

    ``/`` is written ``_`` and ``@`` is written ``__``, which no ``/`` can be, since what follows
    one begins with a letter or digit.  A model's key that is too long for that, that ends in
    another character, or from which another one could not be told (it has a ``_``, or looks as if
    it were shortened) is shortened and ends in ``-`` and ten digits of its sha256.

    >>> label_of("org/llama@v1")
    'weightd.io/model.org_llama__v1'
    >>> label_of("org/my_llama")
    'weightd.io/model.org_my_llama-5ece413020'
    """
    readable = key.replace("/", "_").replace("@", "__")
    if (
        len(readable) <= NAME_MOST
        and "_" not in key
        and _READS_BACK.fullmatch(readable)
        and not _LOOKS_HASHED.fullmatch(readable)
    ):
        return PREFIX + readable
    # Only here, since a command that prints a label has no other need of it.
    import hashlib

    digits = hashlib.sha256(key.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{PREFIX}{readable[:_READABLE_MOST]}-{digits}"
