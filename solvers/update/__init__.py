"""The arithmetic that turns gradients into new weights."""
