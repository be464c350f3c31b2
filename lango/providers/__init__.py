"""Speaking to models: one file per wire, each the only one to import its vendor's SDK."""
