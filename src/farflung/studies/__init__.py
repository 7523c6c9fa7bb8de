"""Exploring one world, and studies that train many teams, each with its own figures and page."""
