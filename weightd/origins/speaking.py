"""What goes wrong on the way to an origin, as the errors that callers know.

No word of a credential passes here: what a server or the system says is cut
short, made printable and repeated; what was sent to it never is.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Final

from weightd.errors import OriginFailed, OriginTimeout

WORDS_MAX: Final = 300
RETRY_AFTER_MAX: Final = 3600

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
    for secret in secrets:
        text = text.replace(secret, "***")
    return _QUERY.sub("?…", text)


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
        words = f"its name cannot be looked up ({error.strerror})"
        retryable = error.errno not in _UNKNOWN_NAME
        raise OriginFailed(source, words, retryable=retryable) from None
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
