"""Tables of which a pass reads a few rows: bags of look-ups, and how they are answered where rows lie elsewhere."""
