"""The HTML page of `engine report`."""
