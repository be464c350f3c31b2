"""HTTP: sessions and turns for clients, from any server to any of them."""
