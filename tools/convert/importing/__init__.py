"""What importers share: the layers that they make, and what common operators become in any format."""
