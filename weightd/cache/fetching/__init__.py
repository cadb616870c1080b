"""A miss becomes a model, once: one job per key, from a listing to a pinned path."""
