"""Tables divided among ranks: which rows each one has, and the exchange of what they look up."""
