"""The exchange of gradients: groups of layers, the background reducer that averages them, and what is reported."""
