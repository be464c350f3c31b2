"""Functions of a Workflow, recorded in the ledger as tools are."""
