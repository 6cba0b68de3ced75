"""One module per listing, each with one `Listing`."""
