"""What comes before iteration 0: which nets there are, how they are built, and which fields are refused."""
