"""How a group's gradients are summed over the ranks: in which type, and within hosts first or not."""
