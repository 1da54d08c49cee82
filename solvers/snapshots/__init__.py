"""Snapshots: what they hold, how they are written, found, checked and read."""
