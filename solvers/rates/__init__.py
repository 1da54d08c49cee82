"""Learning rate, momentum and weight decay of an iteration."""
