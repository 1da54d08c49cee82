"""The layers, one file a type or a family that shares its arithmetic."""
