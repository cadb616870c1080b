"""The daemon on filesystems of each kind, small ones of its own, that fill and fail."""
