"""The master port: refused, filtered, taken, stale."""
