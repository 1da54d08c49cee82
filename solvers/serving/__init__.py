"""What ranks do that train nothing but hold something for those that do."""
