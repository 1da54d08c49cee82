"""Training logs read into tables, and drawn."""
