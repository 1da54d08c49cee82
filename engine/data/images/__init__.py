"""What is done to an image between its file and the batch: decoding, resizing, transformation."""
