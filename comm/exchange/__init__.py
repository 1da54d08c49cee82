"""The way of a gradient: from the layer that has computed it through the background reducer to its mean."""
