"""Launchers: where jobs run. Jobs are made without JAX, which is imported in the process that trains."""
