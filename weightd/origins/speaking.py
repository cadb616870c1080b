"""What goes wrong on the way to an origin, as the errors that callers know.

No word of a credential passes here: what a server or the system says is cut
short, made printable and repeated; what was sent to it never is.
"""

from __future__ import annotations

import base64
import re
import socket
import ssl
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Final

from weightd.errors import InvalidRequest, OriginFailed, OriginTimeout

WORDS_MAX: Final = 300
RETRY_AFTER_MAX: Final = 3600
SECRET_MIN: Final = 4
_START: Final = 8
"""So much of a secret is taken for it, where the rest may have been cut off."""

_CONTROL: Final = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")
_CODE: Final = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,200})")
_QUERY: Final = re.compile(r"\?[^\s\"'<>]+")
_LATER: Final = frozenset({408, 421, 425, 429})
"""Refusals of a request that may be taken another time; so are all of 500 and above."""

_UNKNOWN_NAME: Final = frozenset({socket.EAI_NONAME, socket.EAI_FAIL})
_REASONS: Final = {
    401: "it wants a credential",
    403: "it does not allow this",
    404: "it is not there",
    407: "the proxy wants a credential",
    410: "it is gone",
    429: "too many requests",
}


class Refused(Exception):
    """weightd does not do what the origin's address or redirect asks of it."""


def printable(text: str, most: int = WORDS_MAX) -> str:
    """Somebody else's words on one line, cut short."""
    # A name of an old filesystem may hold what cannot be written down.
    text = text.encode(errors="backslashreplace").decode()
    words = _CONTROL.sub(" ", text).strip()
    return words if len(words) <= most else f"{words[: most - 1]}…"


def words_of_xml(text: str) -> str:
    """What an object store says in its error documents, which repeat keys beside it.

    >>> words_of_xml("<Error><Code>NoSuchKey</Code><Message>No.</Message></Error>")
    'NoSuchKey No.'
    """
    return " ".join(match[1] for match in (_CODE.search(text), _MESSAGE.search(text)) if match)


def hushed(text: str, secrets: Iterable[str] = ()) -> str:
    """Somebody else's words without what they may repeat: a query, which may sign, or a secret.

    >>> hushed("no access to /m?sig=1 by hf_x", ["hf_x"])
    'no access to /m?… by ***'
    """
    return _QUERY.sub("?…", without(text, secrets))


def without(text: str, secrets: Iterable[str]) -> str:
    """The text with no secret in it, in capitals or not, nor the start of one that was cut short.

    What is shorter than `SECRET_MIN` is left: it keeps nothing, and stands in many a word.

    >>> without("Bearer TOKEN-OF-MINE, token-of-m, token-of", ["token-of-mine"])
    'Bearer ***, ***, ***'
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) < SECRET_MIN:
            continue
        start = re.compile(re.escape(secret[:_START]), re.IGNORECASE)
        at = 0
        while (match := start.search(text, at)) is not None:
            end = match.end()
            for wanted in secret[_START:]:
                if text[end : end + 1].lower() != wanted.lower():
                    break
                end += 1
            text = f"{text[: match.start()]}***{text[end:]}"
            at = match.start() + 3
    return text


def repeats(text: str, secrets: Iterable[str]) -> bool:
    """Whether all of a secret is in the text, in capitals or not."""
    low = text.lower()
    return any(secret.lower() in low for secret in secrets if len(secret) >= SECRET_MIN)


def secrets_of(header: str) -> tuple[str, ...]:
    """What must not be repeated of the value of a header that proves who asks.

    >>> secrets_of("Bearer hf_x"), secrets_of("Basic dXNlcjpwYXNz")
    (('Bearer hf_x', 'hf_x'), ('Basic dXNlcjpwYXNz', 'dXNlcjpwYXNz', 'user:pass', 'pass'))
    """
    scheme, _, secret = header.rpartition(" ")
    found = [header, secret]
    if scheme.lower() == "basic":
        try:
            pair = base64.b64decode(secret, validate=True).decode()
        except ValueError:
            pair = ""
        found += [pair, pair.partition(":")[2]]
    # As Python would quote them.
    found += [repr(one)[1:-1] for one in found]
    return tuple(dict.fromkeys(one for one in found if one))


@contextmanager
def hushing(secrets: Collection[str]) -> Iterator[None]:
    """No error passes that repeats a secret, whatever it is that repeats it."""
    try:
        yield
    except OriginFailed as error:
        error.words = without(error.words, secrets)
        raise
    except OriginTimeout as error:
        error.what = without(error.what, secrets)
        raise
    except InvalidRequest as error:
        error.reason = without(error.reason, secrets)
        raise


@contextmanager
def speaking(source: str, what: str, seconds: float) -> Iterator[None]:
    """Turn whatever a connection raises into OriginFailed or OriginTimeout."""
    try:
        yield
    except Refused as error:
        raise OriginFailed(source, printable(str(error)), retryable=False) from None
    except TimeoutError:
        raise OriginTimeout(source, what, seconds) from None
    except ssl.SSLCertVerificationError as error:
        words = f"its certificate is not trusted ({error.verify_message})"
        raise OriginFailed(source, printable(words), retryable=False) from None
    except socket.gaierror as error:
        words = f"{what}: its name cannot be looked up ({error.strerror})"
        retryable = error.errno not in _UNKNOWN_NAME
        raise OriginFailed(source, printable(words), retryable=retryable) from None
    except (HTTPException, ValueError) as error:
        # Not what it said, which may be what it was sent.
        words = f"its answer cannot be understood ({type(error).__name__})"
        raise OriginFailed(source, words) from None
    except ConnectionAbortedError:
        raise OriginFailed(source, "the connection was closed from here") from None
    except OSError as error:
        words = error.strerror or str(error) or type(error).__name__
        raise OriginFailed(source, printable(f"{what}: {words}")) from None


def refused(
    source: str, status: int, words: str, retry_after: str | None, now: float | None = None
) -> OriginFailed:
    """The failure that a status is; ``words`` are the origin's, or empty."""
    told = printable(words) or _REASONS.get(status, "it refused")
    return OriginFailed(
        source,
        f"{told} ({status})",
        http_status=status,
        retryable=status in _LATER or status >= 500,
        retry_after=read_retry_after(retry_after, time.time() if now is None else now),
    )


def read_retry_after(value: str | None, now: float) -> int | None:
    """The seconds that a Retry-After asks for, at most an hour; None for what is none.

    >>> read_retry_after("7", 0.0), read_retry_after("Thu, 01 Jan 1970 00:00:09 GMT", 2.0)
    (7, 7)
    >>> read_retry_after("soon", 0.0), read_retry_after(None, 0.0)
    (None, None)
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]), RETRY_AFTER_MAX)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - now
    except ValueError:
        return None
    return max(0, min(round(seconds), RETRY_AFTER_MAX))
