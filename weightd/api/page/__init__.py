"""The page at `/`: its document, its figures in the wire's words, and the route of both."""
