"""The fault harness: it breaks things on purpose and checks the product's guarantees."""
