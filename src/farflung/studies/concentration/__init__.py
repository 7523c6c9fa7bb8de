"""Theorem 4.1 against simulation."""
