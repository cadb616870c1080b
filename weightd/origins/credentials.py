"""Secrets by name: files that the operator lists, read when one is used and never shown."""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Sequence
from typing import Final

from weightd.errors import InvalidRequest, OriginFailed
from weightd.origins.contract import CredentialFile, Trust
from weightd.origins.speaking import printable

CREDENTIAL_BYTES_MAX: Final = 64 << 10
_HEADER: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]{0,63}):\s*(\S.*)", re.ASCII)
_SCHEMED: Final = re.compile(r"(Basic|Bearer|Token) \S+", re.IGNORECASE | re.ASCII)


def read_credential(source: str, name: str, trust: Trust) -> str:
    """The content of the file that a credential's name stands for.

    Raises InvalidRequest for a name that the settings do not list, OriginFailed
    for a file that cannot be read.
    """
    found = trust.credential(name)
    if found is None:
        raise unknown_credential(name)
    return read_secret(source, found.path, f"the file of credential {name!r}")


def unknown_credential(name: str, known: Sequence[CredentialFile] | None = None) -> InvalidRequest:
    """The refusal of a name; what is known is only told to those who may name any of it."""
    reason = f"there is no {name!r:.60} in the settings"
    if known is not None:
        reason += f"; there is {', '.join(sorted(one.name for one in known)) or 'none'}"
    return InvalidRequest(what="credential", reason=reason)


def read_secret(source: str, path: str, what: str) -> str:
    """The text of a small file, without the blanks around it.  Raises OriginFailed."""
    try:
        with open(path, "rb") as file:
            text = file.read(CREDENTIAL_BYTES_MAX).decode().strip()
    except OSError as error:
        words = f"{what} cannot be read ({error.strerror})"
        raise OriginFailed(source, words, retryable=False) from None
    except UnicodeDecodeError:
        raise OriginFailed(source, f"{what} is not text", retryable=False) from None
    if not text:
        raise OriginFailed(source, f"{what} is empty", retryable=False)
    return text


def as_header(source: str, secret: str, what: str) -> tuple[str, str]:
    """The header that a secret stands for: a token, ``Basic …``, or ``Name: value``.

    >>> as_header("", "hf_x", ""), as_header("", "X-Key: 1", "")
    (('Authorization', 'Bearer hf_x'), ('X-Key', '1'))
    """
    if not secret.isascii() or not secret.isprintable():
        raise OriginFailed(source, f"{what} is not one line of ASCII", retryable=False)
    if (match := _HEADER.fullmatch(secret)) is not None:
        return match[1], match[2]
    if _SCHEMED.fullmatch(secret):
        return "Authorization", secret
    return "Authorization", f"Bearer {secret}"


def as_settings(source: str, secret: str, what: str) -> dict[str, str]:
    """The settings in a secret: a JSON object, or lines of ``name = value``; names in lower case.

    Raises OriginFailed, which repeats nothing of it.
    """
    try:
        if secret.startswith("{"):
            found = json.loads(secret)
        else:
            parser = configparser.ConfigParser(interpolation=None)
            parser.read_string(secret if secret.startswith("[") else f"[default]\n{secret}")
            found = dict(parser[parser.sections()[0]])
    except (ValueError, configparser.Error, IndexError):
        words = f"{what} is neither a JSON object nor lines of name = value"
        raise OriginFailed(source, printable(words), retryable=False) from None
    return {str(name).lower(): str(value) for name, value in found.items()}
