"""Ranks that talk to each other: communicators over MPI and threads, and what ranks agree on first."""
