"""Tools as ADK runs them: arguments, approvals, errors."""
