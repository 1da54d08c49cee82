"""What the examples train on: real images of digits; text and images that are generated."""
