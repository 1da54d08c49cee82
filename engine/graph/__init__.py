"""From the layers of a prototxt to those that run: filtering, splits, what backward needs, how long values live."""
