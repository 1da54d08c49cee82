"""What several layer types share; no layer types themselves."""
