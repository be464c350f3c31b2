"""The endpoints of /v1, one router per noun."""
