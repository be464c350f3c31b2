"""Model providers: one file per provider API, the only one that imports the vendor's SDK."""
