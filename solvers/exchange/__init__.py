"""The distributed side of a solver: what ranks average, agree on and measure."""
