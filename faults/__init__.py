"""The fault harness: what the product promises when things go wrong, tried by breaking them."""
