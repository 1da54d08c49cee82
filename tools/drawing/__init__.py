"""Pictures of nets: what is drawn, where it lies, and as which kind of file."""
