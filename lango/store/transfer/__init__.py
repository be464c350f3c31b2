"""Sessions from and to other places: export, restore, bulk import."""
