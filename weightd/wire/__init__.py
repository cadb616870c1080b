"""The shapes that cross the wire: what requests may say, what answers carry, the error codes.

Requests reject unknown fields; clients ignore unknown fields of answers.
Sizes are integers in bytes, times are RFC 3339 in UTC.  Nothing here knows
the web framework, so that a client can share it.
"""
