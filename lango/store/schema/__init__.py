"""The tables, and the migrations that create and change them."""
