"""What commands print: tables, drawings, logs and the live screen."""
