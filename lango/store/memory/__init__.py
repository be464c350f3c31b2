"""Memory: texts of users that agents search by their words."""
