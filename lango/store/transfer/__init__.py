"""Sessions from and to files and other databases: export, restore, bulk import."""
